//go:build kube_controller_manager

package main

import (
	"os"

	"k8s.io/component-base/cli"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func init() {
	programs["kube-controller-manager"] = func() { os.Exit(cli.Run(kcm.NewControllerManagerCommand())) }
}
