package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

func TestProbe(t *testing.T) {
	here, there := httptest.NewServer(probe("east")), httptest.NewServer(probe("west"))
	defer here.Close()
	defer there.Close()
	west := strings.TrimPrefix(there.URL, "http://")
	nobody := httptest.NewServer(nil)
	closed := strings.TrimPrefix(nobody.URL, "http://")
	nobody.Close()

	get := func(path string, into any) (status int, text string) {
		t.Helper()
		resp, err := http.Get(here.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode == http.StatusOK && into != nil {
			err = json.Unmarshal(body, into)
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", path, err, body)
		}
		return resp.StatusCode, string(body)
	}
	if _, text := get("/name", nil); text != "east" {
		t.Errorf("its name is %q", text)
	}
	var answers map[string]int
	if get("/v2/ask?times=5&to="+url.QueryEscape(west), &answers); len(answers) != 1 || answers["west"] != 5 {
		t.Errorf("west answers %v", answers)
	}
	for address, refused := range map[string]int{west: 0, closed: 2} {
		var failures map[string]int
		get("/v2/connect?times=2&to="+url.QueryEscape(address), &failures)
		n := 0
		for why, times := range failures {
			if n += times; !strings.Contains(why, "refused") {
				t.Errorf("%s: %s", address, why)
			}
		}
		if n != refused {
			t.Errorf("%s: failed are %v, want %d", address, failures, refused)
		}
	}
	var found map[netip.Addr]int
	if get("/v2/resolve?times=2&to=localhost", &found); len(found) == 0 {
		t.Error("localhost has no address")
	}
	for address, times := range found {
		if !address.IsLoopback() || times != 2 {
			t.Errorf("localhost is %v", found)
		}
	}
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/v2/ask?times=1&to=" + closed:                           {http.StatusBadGateway, "refused"},
		"/v2/ask?times=1&to=localhost:80":                        {http.StatusBadRequest, "ParseAddr"},
		"/v2/ask?times=0&to=" + west:                             {http.StatusBadRequest, "times"},
		"/v2/ask?times=1000000&to=" + west:                       {http.StatusBadRequest, "times"},
		"/v2/ask?times=2&to=" + closed:                           {http.StatusBadGateway, "2 of 2 connections"},
		"/v2/resolve?times=2&to=":                                {http.StatusBadGateway, "no such host"},
		"/v2/ask?times=1&to=" + url.QueryEscape("127.0.0.1:80/"): {http.StatusBadRequest, "127.0.0.1:80/"},
	} {
		if status, text := get(path, nil); status != want.status || !strings.Contains(text, want.says) {
			t.Errorf("%s: %d %q, want %v", path, status, text, want)
		}
	}
}

// TestAFailureIsCounted: it ends the others only if as many as run at a time have failed.
func TestAFailureIsCounted(t *testing.T) {
	var did atomic.Int32
	lookup := action{"lookups", func(_ context.Context, to string) ([]string, error) {
		if n := did.Add(1); to == "none" || to == "some" && n%10 == 0 {
			return nil, errors.New("no such host")
		}
		return []string{"10.0.0.1"}, nil
	}}
	for to, want := range map[string]string{
		"all": "<nil>", "some": "10 of 100 lookups failed: no such host", "none": "of %d lookups failed: no such host",
	} {
		did.Store(0)
		counts, err := lookup.repeat(t.Context(), to, 100)
		n := int(did.Load())
		if to == "none" {
			want = fmt.Sprintf(want, n)
		}
		if !strings.HasSuffix(fmt.Sprint(err), want) || (n == 100) != (to != "none") || n < maxConcurrent ||
			err == nil && counts["10.0.0.1"] != 100 {
			t.Errorf("%s: %v, %v after %d", to, counts, err, n)
		}
	}
}

func TestProbeTakesNoArguments(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := probeCommand(ctx, []string{"--bind-address=127.0.0.1:0", "east"})
	if err == nil || !strings.Contains(err.Error(), `"east"`) {
		t.Errorf("the error is %v", err)
	}
}
