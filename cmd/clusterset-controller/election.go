package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// A leader whose node is gone last renewed on the hub up to 10 s before (T1's renewal, by default). The replica that waits saw its last word here
// up to leaderRetry late, counts to leaderDuration, and tries up to leaderRetry later; then it begins. That is over before the other members
// would give this one up, after 50 s.
const (
	leaderDuration = 20 * time.Second
	leaderDeadline = 15 * time.Second
	leaderRetry    = 2 * time.Second // and up to leaderelection.JitterFactor times that more
)

// elect makes the manager's replicas elect a leader. The holder is the pod: a container that crashed leads again at once. contested tells a
// leader that another one is at work.
func elect(o *ctrl.Options, cfg *rest.Config, name string, contested func() bool) error {
	host, err := os.Hostname() // a pod's name
	if err != nil {
		return err
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	cfg.Timeout = leaderDeadline / 2 // an API server that hangs leaves time for a second attempt
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, name, kube.SystemNamespace
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = new(leaderDuration), new(leaderDeadline), new(leaderRetry)
	o.LeaderElectionReleaseOnCancel = true
	o.LeaderElectionResourceLockInterface = &lock{contested: contested, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: name},
		Client:    clients.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: host},
	}}
	return nil
}

// lock is one that a leader does not lose for want of an answer: while the API server is away nobody else can take it either, and a
// program that ends then cannot begin again. Its renewals on the hub would end, too, and the others would remove endpoints that work
// (DESIGN §7: keep serving). When it is back its word counts; a replica that could reach it meanwhile, when this one could not, leads.
type lock struct {
	resourcelock.Interface
	contested func() bool
	held      atomic.Bool
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.held.Store(false)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.held.Store(err == nil)
	return err
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	if err == nil {
		l.held.Store(record.HolderIdentity != "") // none: it is given back
		return nil
	}
	if l.held.Load() && unanswered(err) && !l.contested() {
		return nil
	}
	return err
}

// unanswered tells whether the request cannot have been decided on: no connection, no answer in time, an API server without its store.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsTooManyRequests(err)
}
