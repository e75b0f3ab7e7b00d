// Command controlplane is each of Kubernetes' programs that it was built for, chosen by the name that it is called by.
// A program is a file here with a build tag, so that nobody compiles what they do not run. Each main function is
// upstream's; kubectl's has no -v, which older versions set otherwise.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// programs are the main functions by name.
var programs = map[string]func(){}

func main() {
	run := programs[filepath.Base(os.Args[0])]
	if run == nil {
		fmt.Fprintf(os.Stderr, "controlplane: no program is called %s: call it one of %s\n", os.Args[0],
			strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
		os.Exit(2)
	}
	run()
}
