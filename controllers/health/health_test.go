package health

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/deploy"
)

func scheme(t *testing.T) *runtime.Scheme {
	s := runtime.NewScheme()
	err := errors.Join(hubv1alpha1.AddToScheme(s), aboutv1beta1.AddToScheme(s), inventoryv1alpha1.AddToScheme(s),
		coordinationv1.AddToScheme(s), authorizationv1.AddToScheme(s), mcsv1beta1.Install(s))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReport: the Membership is made, follows what the agent sees, and is written when it changes only. The hub hears
// of Ready as often as its inventory may change.
func TestReport(t *testing.T) {
	writes := 0
	count := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object,
		p client.Patch, opts ...client.SubResourcePatchOption) error {
		writes++
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}}
	claimed := func(id string) *inventoryv1alpha1.ClusterProfile {
		p := &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: id,
			Annotations: map[string]string{clusterset.AnnotationClusterUID: id}}}
		p.Spec.ClusterManager.Name = clusterset.ClusterManager
		return p
	}
	build := func(objects ...client.Object) client.Client {
		return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).WithInterceptorFuncs(count).
			WithStatusSubresource(&hubv1alpha1.Membership{}, &inventoryv1alpha1.ClusterProfile{}).Build()
	}
	expired := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "source-west",
		Labels: map[string]string{liveness.LabelSource: "west"}, Annotations: map[string]string{}}}
	liveness.State{Expired: true}.Write(expired.Annotations)
	set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
	hubSet := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
	local, hub := build(set, expired), build(claimed("east"), claimed("west"), hubSet)
	now, seen := time.Unix(1_700_000_000, 0), health.Facts{Fresh: true, Hub: "https://hub"}
	var answer error
	r := New(Config{
		Cluster: "east", HubNamespace: "blue", LocalNow: local, Hub: func() client.Client { return hub },
		Seen:   func() health.Facts { return seen },
		Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
		DNS:    func(context.Context) error { return answer },
		Now:    func() time.Time { return now },
	})
	pass := func() hubv1alpha1.Membership {
		t.Helper()
		if err := r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(interval)
		var m hubv1alpha1.Membership
		if err := local.Get(t.Context(), client.ObjectKey{Name: hubv1alpha1.MembershipName}, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	onHub := func() bool {
		var p inventoryv1alpha1.ClusterProfile
		if err := hub.Get(t.Context(), client.ObjectKey{Namespace: "blue", Name: "east"}, &p); err != nil {
			t.Fatal(err)
		}
		return meta.IsStatusConditionTrue(p.Status.Conditions, inventoryv1alpha1.ConditionMemberReady)
	}

	m := pass()
	peers := meta.FindStatusCondition(m.Status.Conditions, hubv1alpha1.ConditionPeersReachable)
	if m.Status.ClusterSet != "blue" || m.Status.ClusterID != "east" || m.Status.Hub != "https://hub" ||
		!meta.IsStatusConditionTrue(m.Status.Conditions, hubv1alpha1.ConditionMembershipReady) ||
		peers == nil || peers.Reason != "Expired" || !onHub() {
		t.Fatalf("%+v", m.Status)
	}
	if was := writes; pass().ResourceVersion != m.ResourceVersion || writes != was {
		t.Errorf("%d writes of a settled state", writes-was)
	}
	now = m.Status.ReportedAt.Add(reportEvery)
	reported := pass()
	if age := reported.Status.ReportedAt.Sub(m.Status.ReportedAt.Time); age != reportEvery {
		t.Errorf("reported again after %v", age)
	}
	answer = &net.DNSError{IsNotFound: true}
	m = pass()
	dnsAnswers := meta.FindStatusCondition(m.Status.Conditions, hubv1alpha1.ConditionDNSAnswers)
	if dnsAnswers.Status != metav1.ConditionFalse || onHub() {
		t.Errorf("%+v; Ready on the hub: %v", dnsAnswers, onHub())
	}
	if err := hub.Delete(t.Context(), hubSet); err != nil {
		t.Fatal(err)
	}
	m = pass()
	if c := meta.FindStatusCondition(m.Status.Conditions, hubv1alpha1.ConditionAdmitted); c.Reason != "NoClusterSet" {
		t.Errorf("the hub has no ClusterSet any more: %+v", c)
	}
	hubSet.ResourceVersion = ""
	if err := hub.Create(t.Context(), hubSet); err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // it flaps
		if answer = nil; i%2 == 1 {
			answer = &net.DNSError{IsNotFound: true}
		}
		pass()
	}
	if onHub() {
		t.Error("the hub's budget is spent, and Ready was written all the same")
	}
	now = now.Add(-time.Hour) // the clock was set back
	if m = pass(); m.Status.ReportedAt.After(now) {
		t.Errorf("it is %v, and was reported at %v", now, m.Status.ReportedAt)
	}
}

// TestAHubWhoseWatchIsLateIsReachable while it takes renewals and shows one every two minutes: a proxy may hold watches
// back.
func TestAHubWhoseWatchIsLateIsReachable(t *testing.T) {
	now, seen := time.Unix(1_700_000_000, 0), health.Facts{}
	local := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&hubv1alpha1.Membership{}).Build()
	r := New(Config{
		LocalNow: local, Hub: func() client.Client { return nil },
		Seen:   func() health.Facts { return seen },
		Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
		Now:    func() time.Time { return now },
	})
	want := func(passes int, fresh bool, answer error, reason string) {
		t.Helper()
		seen = health.Facts{Fresh: fresh, Answer: answer, Accepted: answer == nil}
		for range passes {
			if err := r.Report(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := meta.FindStatusCondition(r.Conditions(), hubv1alpha1.ConditionHubReachable)
			if c.Reason != reason {
				t.Fatalf("%+v, want %s", c, reason)
			}
			now = now.Add(interval)
		}
	}
	want(1, false, nil, "Connecting") // it has shown nothing yet
	for range 3 {
		want(4, true, nil, "Answers")
		want(2, false, nil, "Answers")
	}
	want(1, false, errors.New("i/o timeout"), "NoAnswer")
	want(8, false, nil, "Answers")
	want(1, false, nil, "Connecting") // for two minutes
	want(1, true, nil, "Answers")
}

// TestF4ASilentAgentIsNamed although its Lease is renewed or its endpoints answer: its cluster's end is noticed late.
// It stays named until it answers, whatever else answers.
func TestF4ASilentAgentIsNamed(t *testing.T) {
	const long = 5 * time.Minute
	for what, c := range map[string]struct {
		state  reach.State
		since  time.Duration
		noPort bool
		want   string
		next   reach.State // a minute later, since that moment
		then   string
	}{
		"silent":                    {reach.Silent, long, false, "AgentsSilent", reach.Serving, "AgentsSilent"},
		"only its endpoints answer": {reach.Serving, long, false, "AgentsSilent", reach.Silent, "AgentsSilent"},
		"never answered":            {reach.Unknown, long, false, "AgentsSilent", reach.Answers, "Reached"},
		"answers at no address":     {reach.Unknown, long, true, "Reached", reach.Answers, "Reached"},
		"starts again":              {reach.Silent, 20 * time.Second, false, "Reached", reach.Serving, "AgentsSilent"},
		"is unreachable":            {reach.Unreachable, long, false, "AgentsSilent", reach.Serving, "AgentsSilent"},
		"is ahead of this clock":    {reach.Silent, -time.Hour, false, "Reached", reach.Serving, "AgentsSilent"},
		"answers":                   {reach.Answers, long, false, "Reached", reach.Silent, "Reached"},
	} {
		now := time.Unix(1_700_000_000, 0)
		source := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: kube.SystemNamespace, Name: "source-west",
			CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels:            map[string]string{liveness.LabelSource: "west"},
		}}
		reach.Member{State: c.state, Since: now.Add(-c.since)}.Write(source, 0)
		if !c.noPort {
			reach.WriteAddresses(source, []string{"10.0.0.1:8082"})
		}
		onHub := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "west",
			Annotations: map[string]string{withdrawal.AnnotationAcknowledged: ""}}}
		reach.WriteAddresses(onHub, reach.ReadAddresses(source, nil))
		local := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(source).
			WithStatusSubresource(&hubv1alpha1.Membership{}).Build()
		hub := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(onHub).Build()
		r := New(Config{
			Cluster: "east", HubNamespace: "blue", LocalNow: local, Hub: func() client.Client { return hub },
			Seen:   func() health.Facts { return health.Facts{Fresh: true} },
			Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
			Now:    func() time.Time { return now },
		})
		report := func(want string) {
			t.Helper()
			if err := r.Report(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := meta.FindStatusCondition(r.Conditions(), hubv1alpha1.ConditionPeersReachable)
			if got.Reason != want || want == "AgentsSilent" && !strings.Contains(got.Message, "west") {
				t.Errorf("%s: %+v, want %s", what, got, want)
			}
		}
		report(c.want)
		now = now.Add(time.Minute)
		reach.Member{State: c.next, Since: now}.Write(source, 0)
		if err := local.Update(t.Context(), source); err != nil {
			t.Fatal(err)
		}
		report(c.then)
	}
}

// TestWithoutTheHubPeersAreThoseOfTheStoredLeases: their endpoints follow these, before the agent has linked to the hub
// and after that has lost its data.
func TestWithoutTheHubPeersAreThoseOfTheStoredLeases(t *testing.T) {
	source := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "source-west",
		Labels: map[string]string{liveness.LabelSource: "west"}, Annotations: map[string]string{}}}
	answers := source.DeepCopy()
	liveness.State{Expired: true}.Write(source.Annotations)
	reach.Member{State: reach.Answers, Since: time.Now()}.Write(answers, 0)
	emptied := fake.NewClientBuilder().WithScheme(scheme(t)).Build()
	for what, c := range map[string]struct {
		hub    client.Client
		lease  *coordinationv1.Lease
		reason string
	}{
		"not linked":                       {nil, source, "Expired"},
		"emptied":                          {emptied, source, "Expired"},
		"not linked, and nobody asks west": {nil, answers, "PeersUnknown"},
		"emptied, and west is asked":       {emptied, answers, "Reached"},
	} {
		hub := c.hub
		local := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(c.lease.DeepCopy()).
			WithStatusSubresource(&hubv1alpha1.Membership{}).Build()
		r := New(Config{
			Cluster: "east", HubNamespace: "blue", LocalNow: local, Hub: func() client.Client { return hub },
			Seen:   func() health.Facts { return health.Facts{} },
			Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
			Now:    time.Now,
		})
		if err := r.Report(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := meta.FindStatusCondition(r.Conditions(), hubv1alpha1.ConditionPeersReachable)
		if got.Reason != c.reason {
			t.Errorf("%s: %+v", what, got)
		}
		got = meta.FindStatusCondition(r.Conditions(), hubv1alpha1.ConditionRangesDisjoint)
		if got.Reason != "RangesUnknown" {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// TestARightToListLeasesThatIsMissingIsStated like any other.
func TestARightToListLeasesThatIsMissingIsStated(t *testing.T) {
	local := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("no"))
		},
	}).WithStatusSubresource(&hubv1alpha1.Membership{}).Build()
	r := New(Config{
		Cluster: "east", HubNamespace: "blue", LocalNow: local, Hub: func() client.Client { return nil },
		Seen:   func() health.Facts { return health.Facts{} },
		Rights: func(context.Context) (here, onHub []string, _ error) { return []string{"list leases"}, nil, nil },
		Now:    time.Now,
	})
	err := r.Report(t.Context())
	got := meta.FindStatusCondition(r.Conditions(), hubv1alpha1.ConditionPermitted)
	if err != nil || got == nil || got.Reason != "RightsMissingHere" {
		t.Errorf("%v; %+v", err, got)
	}
}

// TestAKindThatIsMissingHereIsStated, also of an agent that starts, which asks for it in vain.
func TestAKindThatIsMissingHereIsStated(t *testing.T) {
	gone := func(list client.ObjectList) error {
		switch list.(type) {
		case *mcsv1beta1.ServiceImportList: // as of a client that has seen it
			return apierrors.NewNotFound(mcsv1beta1.Resource("serviceimports"), "")
		case *aboutv1beta1.ClusterPropertyList:
			return &meta.NoKindMatchError{}
		}
		return nil
	}
	local := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return cmp.Or(gone(list), c.List(ctx, list, opts...))
		},
		Get: func(
			ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if _, is := o.(*aboutv1beta1.ClusterProperty); is {
				return &meta.NoKindMatchError{}
			}
			return c.Get(ctx, k, o, opts...)
		},
	}).WithStatusSubresource(&hubv1alpha1.Membership{}).Build()
	r := New(Config{
		Cluster: "east", HubNamespace: "blue", LocalNow: local, Hub: func() client.Client { return nil },
		Kinds: []client.ObjectList{&mcsv1beta1.ServiceExportList{}, &mcsv1beta1.ServiceImportList{},
			&aboutv1beta1.ClusterPropertyList{}},
		Seen:   func() health.Facts { return health.Facts{} },
		Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
		Now:    time.Now,
	})
	err := r.Report(t.Context())
	got := meta.FindStatusCondition(r.Conditions(), hubv1alpha1.ConditionPermitted)
	if err != nil || got == nil || got.Reason != "KindsMissing" ||
		!strings.Contains(got.Message, "ServiceImport, ClusterProperty") {
		t.Errorf("%v; %+v", err, got)
	}
}

// TestAskDNS asks as a Pod does.
func TestAskDNS(t *testing.T) {
	listener, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var rcode atomic.Int32
	server := &dns.Server{PacketConn: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if m.Rcode = int(rcode.Load()); m.Rcode == dns.RcodeSuccess && q.Question[0].Name == version {
			rr, _ := dns.NewRR(version + ` 5 IN TXT "1.1.0"`)
			m.Answer = []dns.RR{rr}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	ask := AskDNS(listener.LocalAddr().String())
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
	rcode.Store(dns.RcodeNameError)
	var failed *net.DNSError
	if err := ask(t.Context()); !errors.As(err, &failed) || !failed.IsNotFound {
		t.Errorf("%v for a name that does not exist", err)
	}
	rcode.Store(dns.RcodeServerFailure)
	if err := ask(t.Context()); !errors.As(err, &failed) || failed.IsNotFound {
		t.Errorf("%v for a server that fails", err)
	}
}

// TestMissing: what the manifests grant is what the agent asks for; a right that is gone is named. An authorizer that
// lists no rules, as one by webhook, is asked about each right.
func TestMissing(t *testing.T) {
	wanted, err := Rules(deploy.Manifests, "member/rbac.yaml", "clusterset-dns:agent",
		"clusterset-dns:agent-membership",
		"clusterset-controller")
	if err != nil || len(wanted) < 10 {
		t.Fatalf("%d rules, %v", len(wanted), err)
	}
	all := func(*rbacv1.PolicyRule) bool { return true }
	none := func(*rbacv1.PolicyRule) bool { return false }
	without := func(r *rbacv1.PolicyRule) bool { return r.Resources[0] != "memberships/status" }
	granted := func(may func(*rbacv1.PolicyRule) bool) (out []authorizationv1.ResourceRule) {
		for i := range wanted {
			if r := &wanted[i]; may(r) {
				out = append(out, authorizationv1.ResourceRule{
					Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
			}
		}
		return out
	}
	for what, c := range map[string]struct {
		listed, granted func(*rbacv1.PolicyRule) bool
		incomplete      bool
		fails           string
		want            []string
	}{
		"all":                      {all, all, false, "", nil},
		"without":                  {without, without, false, "", []string{"patch memberships/status"}},
		"all, of an unknown list":  {all, all, true, "", nil},
		"not listed":               {none, all, true, "", nil},
		"not listed, without":      {none, without, true, "", []string{"patch memberships/status"}},
		"not listed, and it fails": {none, none, true, "the webhook is down", nil},
	} {
		c2 := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				if review, ok := o.(*authorizationv1.SelfSubjectRulesReview); ok {
					review.Status.Incomplete, review.Status.ResourceRules = c.incomplete, granted(c.listed)
					return nil
				}
				review := o.(*authorizationv1.SelfSubjectAccessReview)
				of := review.Spec.ResourceAttributes
				if of.Subresource != "" {
					of.Resource += "/" + of.Subresource
				}
				var names []string
				if of.Name != "" {
					names = []string{of.Name}
				}
				review.Status.Allowed = of.Namespace == kube.SystemNamespace &&
					allowed(granted(c.granted), of.Group, of.Resource, names, of.Verb)
				review.Status.EvaluationError = c.fails
				return nil
			},
		}).Build()
		got, err := Missing(t.Context(), c2, kube.SystemNamespace, wanted)
		if (err != nil) != (c.fails != "") || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", what, got, err, c.want)
		}
	}
}

// TestRunReportsAtOnceAndRegularly, also after a failure.
func TestRunReportsAtOnceAndRegularly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		local := fake.NewClientBuilder().WithScheme(scheme(t)).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("no answer")
			},
		}).Build()
		r := New(Config{
			LocalNow: local, Hub: func() client.Client { return nil }, Now: time.Now,
			Seen: func() (f health.Facts) { at = append(at, time.Since(began)); return f },
		})
		ctx, end := context.WithTimeout(t.Context(), 25*time.Second)
		defer end()
		time.AfterFunc(3*time.Second, r.Kick)
		r.Run(ctx)
		if want := []time.Duration{3 * time.Second, interval, 2 * interval}; !slices.Equal(at, want) {
			t.Errorf("it reported at %v, want %v", at, want)
		}
	})
}

// TestP5ReadyOnTheHubIsOfOneMoment: a hub that answers after the agent has looked does not get what was before.
func TestP5ReadyOnTheHubIsOfOneMoment(t *testing.T) {
	local := fake.NewClientBuilder().WithScheme(scheme(t)).WithStatusSubresource(&hubv1alpha1.Membership{}).Build()
	profile := &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "east"}}
	hub := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(profile).WithStatusSubresource(profile).Build()
	looks := 0
	r := New(Config{
		Cluster: "east", HubNamespace: "blue", LocalNow: local, Hub: func() client.Client { return hub },
		Seen: func() health.Facts {
			looks++
			return health.Facts{Fresh: looks > 1, Hub: "https://hub"}
		},
		Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
		Now:    time.Now,
	})
	if err := r.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(profile), profile); err != nil {
		t.Fatal(err)
	}
	if len(profile.Status.Conditions) > 0 {
		t.Errorf("the hub has answered, and shows %+v", profile.Status.Conditions)
	}
}
