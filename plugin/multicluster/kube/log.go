package kube

import (
	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

var log = clog.NewWithPlugin("multicluster")

// clientLog takes what client-go logs about our watches. health reports what matters of it once; the rest is for
// debugging.
func clientLog() logr.Logger {
	return funcr.New(func(_, args string) { log.Debug(args) }, funcr.Options{})
}
