package members

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// joining is a hub with a member p, and a cluster that is none yet.
type joining struct {
	*set
	r     *member // the cluster; its agent is whichever was started last
	local string  // its agent's kubeconfig
}

func joiningSet(t *testing.T) *joining {
	t.Helper()
	s, err := start(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	j := &joining{set: s}
	t.Cleanup(s.Stop)
	s.logAgents(t)
	j.r = j.cluster(t)
	if j.local, err = j.r.Cluster.ServiceAccountKubeconfig(
		t.Context(),
		"clusterset-system",
		"clusterset-controller",
		nil,
	); err != nil {
		t.Fatal(err)
	}
	return j
}

// cluster is one more, with deploy/member and no agent.
func (j *joining) cluster(t *testing.T) *member {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	cp := lab.Run(t, lab.Options{})
	if err := cp.ApplyFolder(t.Context(), filepath.Join(root, "deploy/member")); err != nil {
		t.Fatal(err)
	}
	c, err := cp.Client(agent.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return &member{&lab.Member{ID: "r", Cluster: cp}, c}
}

// agent runs an agent in r with the hub's credentials of a member.
func (j *joining) agent(t *testing.T, id, credentials, namespace string) *lab.Controller {
	t.Helper()
	hub, err := j.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, "mcs-"+credentials, nil)
	if err != nil {
		t.Fatal(err)
	}
	return j.agentWith(t, j.local, hub, id, namespace)
}

func (j *joining) agentWith(t *testing.T, local, hub, id, namespace string, args ...string) *lab.Controller {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	a, err := lab.StartAgent(t.Context(), filepath.Join(root, "bin", "clusterset-controller"), lab.AgentOptions{
		Kubeconfig: local, HubKubeconfig: hub, HubNamespace: namespace, ClusterID: id, Args: args,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent %s:\n%s", id, tail(a.Log(), 40))
		}
		a.Stop()
	})
	return a
}

// claim applies deploy/hub/member for an id.
func (j *joining) claim(t *testing.T, id string) {
	t.Helper()
	root, err := lab.Root()
	if err == nil {
		err = j.Hub.Apply(t.Context(), lab.HubMember(root, id))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// refused waits until the agent says why this cluster is no member, and looks whether it has done anything.
func (j *joining) refused(t *testing.T, a *lab.Controller, reason string) {
	t.Helper()
	eventually(t, "the agent says "+reason, func() error {
		if !strings.Contains(a.Log(), reason) {
			return errors.New(tail(a.Log(), 5))
		}
		return nil
	})
	if a.Ready() {
		t.Error("the agent says that it is ready")
	}
	if p := j.r.property(t, clusterset.PropertySet); p != nil {
		t.Errorf("a member of %q all the same", p.Spec.Value)
	}
	var records hubv1alpha1.ServiceExportRecordList
	if err := j.hub.List(t.Context(), &records); err != nil {
		t.Fatal(err)
	}
	for _, rec := range records.Items {
		if rec.Spec.ClusterID != "p" && !rec.Spec.Withdrawn {
			t.Errorf("record %s on the hub", rec.Name)
		}
	}
	a.Stop()
}

func (m *member) property(t *testing.T, name string) *aboutv1beta1.ClusterProperty {
	t.Helper()
	p := &aboutv1beta1.ClusterProperty{}
	if err := m.Get(t.Context(), client.ObjectKey{Name: name}, p); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestID2ID3ID4JoinLeaveAndComeAgain: who has no claim, or another's, is told so and half-joins nothing; who has
// one is a member as long as it says so; leaving leaves nothing behind but the users' own, also where the agent is
// killed at every turn; and the id is free again.
func TestID2ID3ID4JoinLeaveAndComeAgain(t *testing.T) {
	t.Parallel()
	j := joiningSet(t)
	p, r := j.members["p"], j.r
	ns := j.namespace(t, "p")
	r.create(t, &corev1.Namespace{ObjectMeta: objectMeta(ns)})
	r.exported(t, service(ns, "web"), "10.3.0.1")
	p.exported(t, service(ns, "web"), "10.1.0.1")

	j.refused(t, j.agent(t, "r", "p", lab.HubNamespace), "kubectl clusterset join")
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "NotJoined", "was evicted")
	j.refused(t, j.agent(t, "p", "p", lab.HubNamespace), "is held by another cluster")
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "IDTaken", "is held by another cluster")
	if id := r.property(t, clusterset.PropertyID); id != nil {
		t.Errorf("the id is said to be %q, and nothing was joined", id.Spec.Value)
	}

	for round := range 2 {
		j.claim(t, "r")
		r.Agent = j.agent(t, "r", "r", lab.HubNamespace)
		if err := r.Agent.UntilReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{clusterset.PropertyID: "r",
			clusterset.PropertySet: lab.HubNamespace} {
			eventually(t, "ClusterProperty "+name, func() error {
				if got := r.property(t, name); got == nil || got.Spec.Value != want {
					return fmt.Errorf("%+v, want %s", got, want)
				}
				return nil
			})
		}
		p.wantImport(t, ns, "web", ready("p", "r"))
		r.wantImport(t, ns, "web", ready("p", "r"))

		r.Agent.Kill()
		other := j.agent(t, "r", "r", lab.HubNamespace+"-two") // where these credentials may read nothing
		time.Sleep(2 * time.Second)                            // nothing to wait for: nothing may happen
		if got := r.property(t, clusterset.PropertySet); got == nil || got.Spec.Value != lab.HubNamespace {
			t.Fatalf("an agent of another clusterset changed the membership: %+v", got)
		}
		other.Stop()
		j.leave(t, ns, round == 1)
	}
}

// leave takes r out, with an agent that is killed again and again if so wanted.
func (j *joining) leave(t *testing.T, ns string, killing bool) {
	t.Helper()
	p, r := j.members["p"], j.r
	if err := r.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), r.property(t, clusterset.PropertySet)); !apierrors.IsForbidden(err) {
		t.Fatalf("an admin's deletion of the membership: %v", err)
	}
	change(
		t,
		r,
		&aboutv1beta1.ClusterProperty{ObjectMeta: objectMeta(clusterset.PropertySet)},
		func(p *aboutv1beta1.ClusterProperty) {
			p.Annotations = map[string]string{clusterset.AnnotationLeaving: "true"}
		},
	)
	kills := 0
	eventually(t, "the membership ends", func() error {
		// A renewal that a kill cut short holds leaving up, by the clock of one process.
		if kills++; killing && kills <= 8 && r.Agent.Running() {
			time.Sleep(150 * time.Millisecond) // it gets a little further each time
			r.Agent.Kill()
			if err := r.Agent.Start(t.Context()); err != nil {
				return err
			}
			time.Sleep(time.Second)
		}
		if got := r.property(t, clusterset.PropertySet); got != nil {
			return fmt.Errorf("%+v", got.ObjectMeta)
		}
		return nil
	})
	p.wantImport(t, ns, "web", ready("p"))
	p.wantEndpoints(t, ns, "web", "p/http/10.1.0.1:8080")
	for _, of := range []struct {
		list client.ObjectList
		opts []client.ListOption
	}{
		{&mcsv1beta1.ServiceImportList{}, nil},
		{&hubv1alpha1.ServiceExportRecordList{}, nil},
		{&discoveryv1.EndpointSliceList{}, []client.ListOption{client.HasLabels{mcsv1beta1.LabelServiceName}}},
		{&corev1.ServiceList{}, []client.ListOption{client.HasLabels{"app.kubernetes.io/managed-by"}}},
	} {
		if err := r.List(t.Context(), of.list, of.opts...); err != nil {
			t.Fatal(err)
		}
		if n := length(t, of.list); n != 0 {
			t.Errorf("%d of %T are left", n, of.list)
		}
	}
	var export mcsv1beta1.ServiceExport
	if err := r.Get(
		t.Context(),
		client.ObjectKey{Namespace: ns, Name: "web"},
		&export,
	); err != nil ||
		len(export.Status.Conditions) > 0 {
		t.Errorf("the user's ServiceExport: %v, %+v", err, export.Status)
	}
	profile := &inventoryv1alpha1.ClusterProfile{}
	key := client.ObjectKey{Namespace: lab.HubNamespace, Name: "r"}
	if err := j.hub.Get(
		t.Context(),
		key,
		profile,
	); err != nil ||
		profile.Annotations[clusterset.AnnotationLeft] == "" {
		t.Fatalf("the hub is not told: %v, %v", err, profile.Annotations)
	}
	j.refused(t, r.Agent, "has left")
	// There is no hub controller here: its part is done by hand.
	profile.Finalizers = nil
	if err := errors.Join(
		j.hub.Update(t.Context(), profile),
		client.IgnoreNotFound(j.hub.Delete(t.Context(), profile)),
	); err != nil {
		t.Fatal(err)
	}
}

// TestTheTokenIsRenewed: at a small part of its lifetime, in the Secret that the agent's kubeconfig comes from, and
// for as long.
func TestTheTokenIsRenewed(t *testing.T) {
	s := three(t)
	a := s.members["a"]
	const lifetime = 600 // seconds; the API server gives none for less
	token, err := s.Hub.Kubectl(
		t.Context(),
		"",
		"-n",
		lab.HubNamespace,
		"create",
		"token",
		"mcs-a",
		fmt.Sprintf("--duration=%ds", lifetime),
	)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: objectMeta(clusterset.SecretHub),
		Data: map[string][]byte{
			"kubeconfig": []byte("the user's"),
			"token":      []byte(strings.TrimSpace(token)),
		},
	}
	secret.Namespace = "clusterset-system"
	a.create(t, secret)
	t.Cleanup(func() { _ = a.Delete(context.WithoutCancel(t.Context()), secret) })
	a.Agent.Kill() // it looks for the Secret once a minute
	if err := a.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var renewed string
	eventually(t, "a new token", func() error {
		if err := a.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		if renewed = string(secret.Data["token"]); renewed == strings.TrimSpace(token) {
			return errors.New("still the first one")
		}
		return nil
	})
	if string(secret.Data["kubeconfig"]) != "the user's" {
		t.Error("the kubeconfig was changed")
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: renewed}}
	if err := s.hub.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	if !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:clusterset:mcs-a" {
		t.Errorf("the hub says of the new token: %+v", review.Status)
	}
}

// TestATokenThatIsNotRenewedIsTold: another member's token, which the hub would not renew.
func TestATokenThatIsNotRenewedIsTold(t *testing.T) {
	s := three(t)
	b := s.members["b"]
	token, err := s.Hub.Kubectl(
		t.Context(),
		"",
		"-n",
		lab.HubNamespace,
		"create",
		"token",
		"mcs-c",
		"--duration=24h", // it expires after the one in use: that is not the agent's own
	)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: objectMeta(clusterset.SecretHub),
		Data:       map[string][]byte{"token": []byte(strings.TrimSpace(token))},
	}
	secret.Namespace = "clusterset-system"
	b.create(t, secret)
	t.Cleanup(func() { _ = b.Delete(context.WithoutCancel(t.Context()), secret) })
	b.Agent.Kill() // it looks for the Secret once a minute
	if err := b.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.wantMembership(t, "CredentialsValid", metav1.ConditionFalse, "NotRenewed", "mcs-c")
	if err := b.Get(
		t.Context(),
		client.ObjectKeyFromObject(secret),
		secret,
	); err != nil ||
		string(secret.Data["token"]) != strings.TrimSpace(token) {
		t.Errorf("the token was changed: %v", err)
	}
}

// TestP3ID5TheInventory: the member's part of its ClusterProfile is its version and its ClusterProperties as they
// are; one that is too
// long for the inventory is reported.
func TestP3ID5TheInventory(t *testing.T) {
	s := three(t)
	a := s.members["a"]
	long := &aboutv1beta1.ClusterProperty{
		ObjectMeta: objectMeta("notes.example.com"),
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: strings.Repeat("é", 1025)},
	}
	users := &aboutv1beta1.ClusterProperty{
		ObjectMeta: objectMeta("region.example.com"),
		Spec:       aboutv1beta1.ClusterPropertySpec{Value: "eu-west"},
	}
	a.create(t, users, long)
	want := []string{
		"cluster.clusterset.k8s.io=a",
		"clusterset.k8s.io=clusterset",
		"region.example.com=eu-west",
		"service-ranges.clusterset-dns.io=10.96.0.0/16",
		"vip-blocks.clusterset-dns.io=ipv4=0 ipv6=0",
	}
	eventually(t, "the ClusterProfile shows the properties", func() error {
		var profile inventoryv1alpha1.ClusterProfile
		if err := s.hub.Get(
			t.Context(),
			client.ObjectKey{Namespace: lab.HubNamespace, Name: "a"},
			&profile,
		); err != nil {
			return err
		}
		var got []string
		for _, p := range profile.Status.Properties {
			got = append(got, p.Name+"="+p.Value)
		}
		if !slices.Equal(got, want) || !strings.HasPrefix(profile.Status.Version.Kubernetes, "v1.") {
			return fmt.Errorf("%v, version %q", got, profile.Status.Version.Kubernetes)
		}
		return nil
	})
	a.wantEvent(t, "default", "notes.example.com", "PropertyTooLong")
	if p := a.property(t, "region.example.com"); p == nil || p.Spec.Value != "eu-west" {
		t.Errorf("the user's property: %+v", p)
	}
}
