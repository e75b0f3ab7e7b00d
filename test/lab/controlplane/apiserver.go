//go:build kube_apiserver

package main

import (
	"os"

	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func init() {
	programs["kube-apiserver"] = func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) }
}
