package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failure is why a resource cannot be watched.
type failure uint8

const (
	healthy failure = iota
	missing
	forbidden
	unauthorized
	failed // unreachable, or any other error
)

// health keeps the results of requests to the API server. It logs each change once, not at every attempt. It repeats a
// failure each hour, because logs are rotated.
type health struct {
	mu     sync.Mutex
	log    clog.P
	synced func() bool
	wanted int                   // how many resources there are
	last   map[*resource]failure // of the last request
	logged map[*resource]failure // what was last logged, since logging began again
	since  time.Time             // when it did
}

func newHealth(plugin string, resources int, synced func() bool) *health {
	log := clog.NewWithPlugin(plugin)
	return &health{log: log, synced: synced, wanted: resources, last: make(map[*resource]failure)}
}

// up reports whether the last request of every resource was answered.
func (h *health) up() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.last) == h.wanted && !anyFailed(h.last)
}

// refused returns an error if the last request for a resource found it missing, or was refused (L2).
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
	current, previous := classify(err), h.last[r]
	h.last[r] = current
	if time.Since(h.since) >= time.Hour {
		h.logged, h.since = make(map[*resource]failure), time.Now()
	}
	if logged, ok := h.logged[r]; ok && logged == current {
		return
	}
	// Credentials and the network are the same for all resources, and permissions are not.
	alreadyLogged := slices.Contains(slices.Collect(maps.Values(h.logged)), current)
	consequence := h.consequence()
	if what == watching && current == forbidden {
		consequence = "changes arrive by a list at each try"
	}
	h.logged[r] = current
	switch current {
	case healthy:
		if previous != healthy && !anyFailed(h.last) {
			h.log.Infof("The API server answers again")
		}
	case missing:
		h.log.Errorf("%v; %s, and it is tried again", refusal(r, current), consequence)
	case forbidden, unauthorized:
		if current == forbidden || !alreadyLogged {
			h.log.Errorf("%v; %s, and it is tried again (%v)", refusal(r, current), consequence, cause(err))
		}
	case failed:
		if !alreadyLogged {
			h.log.Errorf("Cannot list and watch %s: check that the API server can be reached; %s, and it is tried "+
				"again (%v)", r.kind, consequence, cause(err))
		}
	}
}

func anyFailed(of map[*resource]failure) bool {
	for _, f := range of {
		if f != healthy {
			return true
		}
	}
	return false
}

func (h *health) consequence() string {
	if h.synced() {
		return "answers stay as they are"
	}
	return "names are SERVFAIL until the first lists are complete"
}

func refusal(r *resource, f failure) error {
	switch f {
	case missing:
		return fmt.Errorf("%s are not served by the API server: %s", r.kind, r.missing)
	case unauthorized:
		return errors.New("the API server does not accept our credentials: check the kubeconfig or the " +
			"ServiceAccount's token")
	}
	return fmt.Errorf("not allowed to list and watch %s: bind ClusterRole clusterset-dns:coredns to the "+
		"user that CoreDNS authenticates as (deploy/coredns does so for kube-system/coredns)", r.kind)
}

// cause returns err without the URL of the request, which is long.
func cause(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// expected reports whether an error is part of the protocol, so that the reflector asks in another way at once: a
// streamed list that the server does not know or that needs the right to watch, or a resourceVersion that is too old,
// or too new for a server that lags behind.
func expected(err error, what request) bool {
	return what == streamedList && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) ||
		apierrors.IsResourceExpired(err) ||
		apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func classify(err error) failure {
	switch {
	case err == nil:
		return healthy
	case apierrors.IsNotFound(err):
		return missing
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsUnauthorized(err):
		return unauthorized
	}
	return failed
}
