// Command clusterset-controller runs the agent of a member cluster.
package main

import (
	"fmt"
	"os"
)

// version is ours; the build sets it with -ldflags "-X main.version=...".
var version = "dev"

const usage = `clusterset-controller COMMAND [FLAGS]

  agent     keep a member cluster's exports and imports in step with its clusterset
  version   print the version

clusterset-controller COMMAND -help lists the flags.
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "agent":
		err = agentCommand(os.Args[2:])
	case "version", "-version", "--version":
		fmt.Println("clusterset-controller", version)
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
	default:
		fmt.Fprintf(os.Stderr, "unknown command %q\n\n%s", os.Args[1], usage)
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clusterset-controller:", err)
		os.Exit(1)
	}
}
