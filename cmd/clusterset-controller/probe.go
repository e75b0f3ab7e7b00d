package main

import (
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
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	probeTimeout   = 3 * time.Second // for one connection, or for the lookup of one name
	maxConnections = 100             // for one request
	maxConcurrent  = 10              // connections of ask at a time
)

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

// probe answers its name at /name. At /resolve?name= it resolves a name and returns a list of addresses; at
// /ask?address=&times= it opens that many connections and returns the number of answers by name; at /connect, it opens
// them and returns the number of failures by reason.
func probe(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/name", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	mux.HandleFunc("/resolve", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", r.URL.Query().Get("name"))
		for i := range found {
			found[i] = found[i].Unmap()
		}
		slices.SortFunc(found, netip.Addr.Compare)
		respond(w, found, err)
	})
	for path, do := range map[string]func(context.Context, string, int) (map[string]int, error){
		"/ask": ask, "/connect": connect,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			times, err := strconv.Atoi(r.URL.Query().Get("times"))
			if err != nil || times < 1 || times > maxConnections {
				http.Error(w, fmt.Sprintf("times must be within 1..%d", maxConnections), http.StatusBadRequest)
				return
			}
			address, err := netip.ParseAddrPort(r.URL.Query().Get("address"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			answers, err := do(r.Context(), address.String(), times)
			respond(w, answers, err)
		})
	}
	return mux
}

// connect opens that many TCP connections to an address, one after the other, and sends nothing. It returns how many
// failed, by the reason.
func connect(ctx context.Context, address string, times int) (map[string]int, error) {
	failed := map[string]int{}
	for range times {
		c, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", address)
		if err != nil {
			failed[err.Error()]++
			continue
		}
		_ = c.Close()
	}
	return failed, nil
}

// ask connects to an address, which is IP:port, that many times, and returns the number of answers by name. The first
// failure ends it.
func ask(ctx context.Context, address string, times int) (map[string]int, error) {
	c := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	names := make([]string, times)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(maxConcurrent)
	for i := range times {
		all.Go(func() (err error) {
			names[i], err = askOnce(ctx, c, address)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	answers := map[string]int{}
	for _, name := range names {
		answers[name]++
	}
	return answers, nil
}

func askOnce(ctx context.Context, c *http.Client, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/name", nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	name, err := io.ReadAll(io.LimitReader(resp.Body, 256))
	return string(name), err
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
