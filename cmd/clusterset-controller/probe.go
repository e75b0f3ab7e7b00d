package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	probeTimeout  = 3 * time.Second // for one connection, or for the lookup of one name
	maxTimes      = 100             // for one request
	maxConcurrent = 20              // of one request, at a time
)

var errTimeout = fmt.Errorf("no answer within %v", probeTimeout)

// probeCommand serves what kubectl clusterset verify asks of its Pods: who they are, and what they reach.
func probeCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	name := flags.String("name", "", "what this Pod answers: the ID of its cluster")
	address := flags.String("bind-address", ":8080", "address to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("probe takes no arguments, and got %q", flags.Args())
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	srv := &http.Server{Handler: probe(*name), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// probe answers its name at /name. Paths below /v2 do something as often as the parameter times says, and return how
// often they had which result: resolve?to= looks up a name, and has addresses; ask?to= connects to an address and has
// the names that answer; connect?to= has the reasons why connections failed. Other parameters or results need another
// version: verify takes status 404 for an older image.
func probe(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/name", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	for path, do := range map[string]action{"/v2/resolve": {"lookups", resolve}, "/v2/ask": {"connections", ask},
		"/v2/connect": {"connections", connect}} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			times, err := strconv.Atoi(r.FormValue("times"))
			if err != nil || times < 1 || times > maxTimes {
				http.Error(w, fmt.Sprintf("times must be within 1..%d", maxTimes), http.StatusBadRequest)
				return
			}
			to := r.FormValue("to")
			if _, err := netip.ParseAddrPort(to); err != nil && path != "/v2/resolve" {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			counts, err := do.repeat(r.Context(), to, times)
			respond(w, counts, err)
		})
	}
	return mux
}

// action is what probe does.
type action struct {
	plural string
	once   func(ctx context.Context, to string) (results []string, err error)
}

// repeat does it that many times, and counts its results. An error has the number of failures and the first of them;
// maxConcurrent of them end it.
func (do action) repeat(ctx context.Context, to string, times int) (map[string]int, error) {
	var lock sync.Mutex
	var first error
	counts, failed, done := map[string]int{}, 0, 0
	var all errgroup.Group
	all.SetLimit(maxConcurrent)
	for range times {
		all.Go(func() error {
			lock.Lock()
			enough := failed >= maxConcurrent
			lock.Unlock()
			if enough {
				return nil
			}
			ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errTimeout)
			defer cancel()
			results, err := do.once(ctx, to)
			lock.Lock()
			defer lock.Unlock()
			done++
			if err != nil {
				first, failed = cmp.Or(first, err), failed+1
			}
			for _, result := range results {
				counts[result]++
			}
			return nil
		})
	}
	_ = all.Wait() // there are no errors
	if first != nil && times > 1 {
		first = fmt.Errorf("%d of %d %s failed: %w", failed, done, do.plural, first)
	}
	return counts, first
}

// resolve looks up a name. A Resolver gives lookups of one name at the same time one answer, so each has its own.
func resolve(ctx context.Context, name string) (out []string, err error) {
	found, err := new(net.Resolver).LookupNetIP(ctx, "ip", name)
	for _, a := range found {
		out = append(out, a.Unmap().String())
	}
	return out, err
}

// connect opens a TCP connection to an address, and sends nothing. It returns the reason if that fails.
func connect(ctx context.Context, address string) ([]string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return []string{err.Error()}, nil
	}
	_ = c.Close()
	return nil, nil
}

// ask connects to an address, and returns the name of the probe that answers.
func ask(ctx context.Context, address string) ([]string, error) {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/name", nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	name, err := io.ReadAll(io.LimitReader(resp.Body, 256))
	return []string{string(name)}, err
}

// respond writes a result, or an error with status 502.
func respond(w http.ResponseWriter, result any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result)
}
