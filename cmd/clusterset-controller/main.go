// Command clusterset-controller runs the agent of a member cluster, or what keeps a clusterset on its hub.
package main

import (
	"fmt"
	"os"
)

// version is ours; the build sets it with -ldflags "-X main.version=...".
var version = "dev"

const usage = `clusterset-controller COMMAND [FLAGS]

  agent     keep a member cluster's exports and imports in step with its clusterset
  hub       keep a clusterset's inventory on its hub, and clean up after members that departed
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
	case "hub":
		err = hubCommand(os.Args[2:])
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
