//go:build kubectl

package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

func init() {
	programs["kubectl"] = func() {
		_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) // a wrong value is reported where flags are read
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	}
}
