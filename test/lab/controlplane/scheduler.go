//go:build kube_scheduler

package main

import (
	"os"

	"k8s.io/component-base/cli"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func init() {
	programs["kube-scheduler"] = func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) }
}
