// Command generate writes the CRDs of the multi-cluster Services API from the module sigs.k8s.io/mcs-api, in the
// version that go.mod names. make generate runs it.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/mcs-api/config/crd"
)

var files = map[string][]byte{
	"multicluster.x-k8s.io_serviceexports.yaml": crd.ServiceExportCRD,
	"multicluster.x-k8s.io_serviceimports.yaml": crd.ServiceImportCRD,
}

func main() {
	for name, data := range files {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "generate: run it in deploy/crds (make generate):", err)
			os.Exit(1)
		}
	}
}
