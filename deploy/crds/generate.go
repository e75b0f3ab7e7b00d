// Command generate writes the CRDs of the multi-cluster Services API from the module sigs.k8s.io/mcs-api, in the
// version that go.mod names, and adds what kubectl get prints. make generate runs it.
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/mcs-api/config/crd"
)

// category is the one of all kinds of a clusterset: kubectl get multicluster.
const (
	names    = "    shortNames:\n"
	category = "    categories:\n      - multicluster\n"
	columns  = "      additionalPrinterColumns:\n"
)

func main() {
	for name, data := range map[string]string{
		"multicluster.x-k8s.io_serviceexports.yaml": string(crd.ServiceExportCRD),
		"multicluster.x-k8s.io_serviceimports.yaml": string(crd.ServiceImportCRD),
	} {
		data, err := add(data, names, category+names, 1)
		if err == nil && strings.HasSuffix(name, "exports.yaml") {
			data, err = add(data, columns, columns+conditions("Valid", "Ready", "Conflict"), 2) // of both versions
		}
		if err == nil {
			err = os.WriteFile(name, []byte(data), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "generate: run it in deploy/crds (make generate):", err)
			os.Exit(1)
		}
	}
}

// add replaces a line that must be there n times.
func add(data, line, with string, n int) (string, error) {
	if found := strings.Count(data, line); found != n {
		return "", fmt.Errorf("the module's CRD has %q %d times, want %d", line, found, n)
	}
	return strings.ReplaceAll(data, line, with), nil
}

// conditions are columns with the status of each condition.
func conditions(types ...string) string {
	var out strings.Builder
	for _, c := range types {
		fmt.Fprintf(&out, "        - name: %s\n          type: string\n", c)
		fmt.Fprintf(&out, "          jsonPath: .status.conditions[?(@.type==%q)].status\n", c)
	}
	return out.String()
}
