// Package cluster is a connection to one API server, with what the commands do there: ask for versions and rights, apply, delete, wait.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// Cluster is one API server.
type Cluster struct {
	client.Client
	Name   string // for messages: "the hub", "this cluster"
	Config *rest.Config
}

// Scheme knows the kinds that are read or written by their types.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextensionsv1.AddToScheme, mcsv1beta1.Install, hubv1alpha1.AddToScheme, aboutv1beta1.AddToScheme, inventoryv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// New connects. Nothing is asked yet.
func New(name string, cfg *rest.Config) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the server's own fairness will do
	cfg.WarningHandler = rest.NoWarnings{}
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Cluster{c, name, cfg}, nil
}

// Server is what an API server says of itself.
type Server struct {
	Version string
	Now     time.Time // its clock, to the second
}

// Ask asks for the version and the clock.
func (c *Cluster) Ask(ctx context.Context) (s Server, err error) {
	transport, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return s, fmt.Errorf("%s: %w", c.Name, err)
	}
	base, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return s, fmt.Errorf("%s: %w", c.Name, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/version").String(), nil)
	if err != nil {
		return s, fmt.Errorf("%s: %w", c.Name, err)
	}
	resp, err := transport.Do(r)
	if err != nil {
		return s, fmt.Errorf("%s cannot be reached: %w", c.Name, err)
	}
	defer resp.Body.Close()
	if s.Now, err = http.ParseTime(resp.Header.Get("Date")); err != nil {
		s.Now = time.Now()
	}
	var v version.Info
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("%s: %s answers %s", c.Name, r.URL, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return s, fmt.Errorf("%s: %s: %w", c.Name, r.URL, err)
	}
	s.Version = v.GitVersion
	return s, nil
}

// As is the same API server, seen by somebody else.
func (c *Cluster) As(name, user string, groups ...string) (*Cluster, error) {
	cfg := rest.CopyConfig(c.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return New(name, cfg)
}

// pause is between two looks at something that is waited for.
const pause = 250 * time.Millisecond

// Until looks again and again until done, and reports what it saw last when limit is over. An error is one more reason to look again,
// unless ctx has ended.
func Until(ctx context.Context, limit time.Duration, look func(context.Context) (done bool, why string, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	last := "nothing was seen"
	for {
		done, why, err := look(ctx)
		switch {
		case done:
			return nil
		case err != nil && ctx.Err() == nil:
			last = err.Error()
		case why != "" && ctx.Err() == nil:
			last = why
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return context.Canceled
			}
			return fmt.Errorf("%w: %s", context.Cause(ctx), last)
		case <-time.After(pause):
		}
	}
}
