//go:build kubeadm

package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	utilerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func init() {
	programs["kubeadm"] = func() { utilerrors.HandleError(app.Run()) }
}
