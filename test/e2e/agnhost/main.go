// Command agnhost stands in for the image that docs/start.md uses, registry.k8s.io/e2e-test-images/agnhost: as much of
// it as the page needs. It is also the program that holds a Pod's namespaces (pause).
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if len(os.Args) > 1 && os.Args[1] == "netexec" {
		flags := flag.NewFlagSet("netexec", flag.ExitOnError)
		port := flags.Int("http-port", 8080, "")
		_ = flags.Parse(os.Args[2:]) // it exits
		go serve(fmt.Sprintf(":%d", *port))
	}
	<-signals
}

func serve(addr string) {
	name, err := os.Hostname()
	if err != nil {
		name = err.Error()
	}
	http.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	http.HandleFunc("/clientip", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprint(w, host)
	})
	server := &http.Server{Addr: addr}
	server.SetKeepAlivesEnabled(false) // a client's next request is another connection, and may reach another Pod
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
