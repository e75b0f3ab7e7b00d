package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// clockVariable makes this program an agent whose clock is off by its value. A kernel gives no process a wall clock
// of its own, and what comes between a program and the system's does not reach ours, which are linked statically;
// so its clock is set where it asks for it.
const clockVariable = "SOAK_CLOCK_OFF_BY"

// clockOff runs that agent, if asked to, and does not return then but with an error.
func clockOff() error {
	off, err := time.ParseDuration(os.Getenv(clockVariable))
	if os.Getenv(clockVariable) == "" {
		return nil
	}
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	kubeconfig, hub, namespace := flags.String(
		"kubeconfig",
		"",
		"",
	), flags.String(
		"hub-kubeconfig",
		"",
		"",
	), flags.String(
		"hub-namespace",
		"",
		"",
	)
	id, metrics, probes := flags.String(
		"cluster-id",
		"",
		"",
	), flags.String(
		"metrics-bind-address",
		"",
		"",
	), flags.String(
		"health-probe-bind-address",
		"",
		"",
	)
	pprof := flags.String("pprof-bind-address", "", "")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return err
	}
	logger := textlogger.NewLogger(textlogger.NewConfig())
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	local, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(local, ctrl.Options{
		Scheme:                 agent.Scheme(),
		Metrics:                server.Options{BindAddress: *metrics},
		HealthProbeBindAddress: *probes,
		PprofBindAddress:       *pprof,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&hubv1alpha1.ServiceExportRecord{}: {Namespaces: map[string]cache.Config{kube.SystemNamespace: {}}},
				&coordinationv1.Lease{}:            {Namespaces: map[string]cache.Config{kube.SystemNamespace: {}}},
			},
		},
	})
	if err != nil {
		return err
	}
	a, err := agent.New(
		mgr,
		func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", *hub) },
		agent.Options{
			Cluster:      *id,
			HubNamespace: *namespace,
			Holder:       "clock_" + string(uuid.NewUUID()),
			Now:          func() time.Time { return time.Now().Add(off) },
		},
	)
	if err != nil {
		return err
	}
	if err := errors.Join(
		mgr.Add(a),
		mgr.AddReadyzCheck("controllers", func(*http.Request) error { return a.Ready() }),
	); err != nil {
		return err
	}
	logger.Info("starting", "clock is off by", off)
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		return err
	}
	os.Exit(0)
	return nil
}

// clocks is B: b's clock is ten minutes fast, then ten minutes slow, then right again; each for longer than any
// Lease lasts.
func clocks(ctx context.Context, s *stage) error {
	return s.clocksOff(
		ctx,
		"B. A member's clock is off, where its agent asks for the time: a process has no wall clock of its own",
		"the clock of b",
		1,
		s.b,
	)
}

// hubClock is B: to all agents the hub and its controller are ten minutes slow, and then ten minutes fast. A clock
// is off only beside another;
// so it is theirs that are set, all alike.
func hubClock(ctx context.Context, s *stage) error {
	return s.clocksOff(
		ctx,
		"B. The hub's clock is off: all agents' are beside it, and alike",
		"the clock of the hub and its controller, as every agent sees it",
		-1,
		s.members...)
}

// clocksOff sets the clocks of members' agents; sign tells whose the report calls fast.
func (s *stage) clocksOff(ctx context.Context, section, whose string, sign time.Duration, of ...*member) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	since := time.Now()
	for _, off := range []time.Duration{10 * time.Minute, -10 * time.Minute, 0} {
		for _, m := range of {
			if err := s.setClock(ctx, self, m, sign*off); err != nil {
				return err
			}
		}
		if err := sleep(ctx, s.within()); err != nil {
			return err
		}
		if _, err := s.settle(ctx, time.Now(), time.Minute); err != nil {
			return err
		}
		wrong, _, err := s.until(ctx, time.Minute) // members are well on the hub, and all else is as ever
		if err != nil {
			return err
		}
		for _, what := range wrong {
			s.tape.fail("%s, %v: %s", section, sign*off, what)
		}
	}
	s.found(
		section,
		"the clocks of the API servers",
		"",
		true,
		"the true time throughout: it is agents that are set",
	)
	s.found(
		section,
		whose,
		"",
		true,
		"10 minutes fast, then 10 minutes slow, then right again; each for %s",
		seconds(s.within()),
	)
	for _, m := range s.members {
		s.keeps(section, m, since)
	}
	return nil
}

// setClock starts a member's agent again, with a clock that is off, and waits until it has renewed its Lease.
func (s *stage) setClock(ctx context.Context, self string, m *member, off time.Duration) (err error) {
	s.oracle.Trouble(m.ID)
	m.Agent.Kill()
	began := time.Now()
	if off == 0 {
		err = m.Agent.Start(ctx)
	} else {
		err = m.Agent.StartAs(self, fmt.Sprintf("%s=%v", clockVariable, off))
	}
	if err == nil {
		err = m.Agent.UntilReady(ctx)
	}
	if err != nil {
		return err
	}
	s.oracle.Healed(m.ID, time.Now())
	return insist(ctx, func() error { return unless(s.oracle.Heard(m.ID).After(began)) })
}
