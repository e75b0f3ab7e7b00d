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
	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
)

// A leader whose node fails has last renewed on the hub up to 10 s before. The other replica leads at most 26 s later
// (leaderDuration, leaderRetry and its jitter), before the other members remove this member's endpoints after 50 s.
const (
	leaderDuration = 20 * time.Second
	leaderDeadline = 15 * time.Second
	leaderRetry    = 2 * time.Second
)

// elect makes the manager's replicas elect a leader. The identity is the pod's name: a container that crashed leads
// again at once. contested returns whether another leader is known to be at work. end is called for a leader once
// another one has led.
func elect(o *ctrl.Options, cfg *rest.Config, name string, contested func() bool, end func(error)) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	cfg.Timeout = leaderDeadline / 2 // leaves time for a second attempt
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, name, kube.SystemNamespace
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = new(leaderDuration), new(leaderDeadline), new(leaderRetry)
	o.LeaderElectionReleaseOnCancel = true // the program ends with its manager
	o.LeaderElectionResourceLockInterface = &lock{contested: contested, end: end, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: name},
		Client:     clients.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host},
	}}
	return nil
}

// lock keeps a leader while the API server does not answer. Nobody else can be elected then, and a leader that ended
// would stop renewing on the hub: the other members would remove endpoints that work (DESIGN §7: keep serving).
type lock struct {
	resourcelock.Interface
	contested func() bool
	end       func(error) // ends the process at once: leader election would try again for leaderDeadline
	held      atomic.Bool
	lost      atomic.Bool // another replica has led since: what this one knows is older than what that has published
}

var errLost = errors.New("another replica has led since")

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() && l.held.Swap(false) {
		l.setLost() // another one holds it, or has released it
	}
	return record, raw, err
}

func (l *lock) setLost() {
	l.lost.Store(true)
	l.end(errLost)
}

// Create implements resourcelock.Interface. After an error nothing is held: the LeaseLock then has no Lease, and fails
// to update it without asking the API server.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lost.Load() {
		return errLost
	}
	err := l.Interface.Create(ctx, record)
	if l.held.Swap(err == nil) && apierrors.IsAlreadyExists(err) {
		l.setLost() // another one has created it since it was deleted
	}
	return err
}

// Update implements resourcelock.Interface. For a leader it succeeds if the API server does not answer. Once another
// has led, it fails, so that the process ends.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.lost.Load() {
		return errLost
	}
	err := l.Interface.Update(ctx, record)
	switch {
	case err == nil:
		l.held.Store(record.HolderIdentity != "") // "" releases it
	case l.held.Load() && relist.Unanswered(err) && !l.contested():
		return nil
	}
	return err
}
