//go:build kube_proxy

package main

import (
	"os"

	"k8s.io/component-base/cli"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
)

func init() {
	programs["kube-proxy"] = func() { os.Exit(cli.Run(proxy.NewProxyCommand())) }
}
