package kube

import (
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trouble is why a resource cannot be watched.
type trouble uint8

const (
	none trouble = iota
	missing
	forbidden
	unauthorized
	unreachable
)

// health keeps the results of requests to the API server, and logs each change once, not at every attempt; and trouble
// again each hour, because logs are rotated.
type health struct {
	mu     sync.Mutex
	log    clog.P
	synced func() bool
	wanted int                   // resources
	last   map[*resource]trouble // of the last request; none: it was answered
	logged map[*resource]trouble // since then
	since  time.Time
}

func newHealth(plugin string, resources int, synced func() bool) *health {
	log := clog.NewWithPlugin(plugin)
	return &health{log: log, synced: synced, wanted: resources, last: make(map[*resource]trouble)}
}

// up reports whether the last request of every resource was answered.
func (h *health) up() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.last) == h.wanted && !troubled(h.last, none)
}

// refused is an error while something is missing, or we are refused it (L2).
func (h *health) refused() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, t := range h.last {
		if t == missing || t == forbidden || t == unauthorized {
			return refusal(r, t)
		}
	}
	return nil
}

// observe notes the result of a request.
func (h *health) observe(r *resource, what request, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t, before := classify(err), h.last[r]
	h.last[r] = t
	if time.Since(h.since) >= time.Hour {
		h.logged, h.since = make(map[*resource]trouble), time.Now()
	}
	if logged, is := h.logged[r]; is && logged == t {
		return
	}
	said, consequence := troubled(h.logged, t), h.consequence()
	if what == watching && t == forbidden {
		consequence = "changes come with a list at each try"
	}
	h.logged[r] = t
	switch t {
	case none:
		if before != none && !troubled(h.last, none) {
			h.log.Infof("The API server answers again")
		}
	case missing:
		h.log.Errorf("%v; %s, and it is tried again", refusal(r, t), consequence)
	case forbidden, unauthorized:
		if t == forbidden || !said {
			h.log.Errorf("%v; %s, and it is tried again (%v)", refusal(r, t), consequence, cause(err))
		}
	case unreachable:
		if !said {
			h.log.Errorf("Cannot list and watch %s: check that the API server can be reached; %s, and it is tried "+
				"again (%v)", r.kind, consequence, cause(err))
		}
	}
}

// troubled reports whether some resource has that trouble, or with none, any.
func troubled(of map[*resource]trouble, t trouble) bool {
	for _, o := range of {
		if o == t && t != none || t == none && o != none {
			return true
		}
	}
	return false
}

func (h *health) consequence() string {
	if h.synced() {
		return "answers stay as they are"
	}
	return "names are SERVFAIL until then"
}

func refusal(r *resource, t trouble) error {
	switch t {
	case missing:
		return fmt.Errorf("%s are not served by the API server: %s", r.kind, r.missing)
	case unauthorized:
		return errors.New("the API server does not accept our credentials: check the kubeconfig or the " +
			"ServiceAccount's token")
	}
	return fmt.Errorf("not allowed to list and watch %s: bind ClusterRole clusterset-dns:coredns to the user named "+
		"here (deploy/coredns does so for kube-system/coredns)", r.kind)
}

// cause leaves out the URL, which is long.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// expected reports whether an error is part of the protocol, so that the reflector asks in another way at once: no
// streamed lists, or no right to watch, or a resourceVersion that is too old, or too new for a server that lags
// behind.
func expected(err error, what request) bool {
	return what == streamedList && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) ||
		apierrors.IsResourceExpired(err) ||
		apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func classify(err error) trouble {
	switch {
	case err == nil:
		return none
	case apierrors.IsNotFound(err):
		return missing
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsUnauthorized(err):
		return unauthorized
	}
	return unreachable
}
