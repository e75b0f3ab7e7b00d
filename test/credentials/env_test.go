// Package credentials proves the life of a member's token on real control planes (DESIGN §6; issue 4, D): renewed under
// load without one failed write, run out, and revoked. The members are made by bin/kubectl-clusterset, and their agents
// run from their Deployments, with their Secrets as files. That a member gets no token of another, and none for longer
// than a day, is test/policies' TestTokensAreOnesOwnAndShort.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// long reports whether make chaos asks: then tokens live as long as the API server has them live at least, and nothing
// is
// aged.
var long = os.Getenv("CHAOS") != ""

// lifetime is the shortest that an API server issues tokens for.
const lifetime = 10 * time.Minute

// limit is far more than anything takes: machines are shared.
const limit = 4 * time.Minute

// ns holds the Services.
const ns = "shop"

// environment is a hub that writes an audit log, and its members east and west.
type environment struct {
	root, kubeconfig string
	planes           lab.Planes
	admin            map[string]client.Client
	nodes            map[string]*lab.Kubelet
}

var shared struct {
	sync.Once
	env *environment
	err error
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	code := m.Run()
	if e := shared.env; e != nil {
		for _, n := range e.nodes {
			n.Stop()
		}
		e.planes.Stop()
	}
	os.Exit(code)
}

// setUp returns the clusterset, which the tests share: each leaves both clusters as members.
func setUp(t *testing.T) *environment {
	t.Helper()
	shared.Do(func() {
		shared.env = &environment{admin: map[string]client.Client{}, nodes: map[string]*lab.Kubelet{}}
		shared.err = shared.env.start(context.WithoutCancel(t.Context()))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for name, n := range shared.env.nodes {
				t.Logf("what runs in %s said:\n%s", name, n.Log())
			}
		}
	})
	return shared.env
}

func (e *environment) start(ctx context.Context) (err error) {
	if e.root, err = lab.Root(); err != nil {
		return err
	}
	// That go's cache of test results knows when make has built another.
	if _, err := os.Stat(filepath.Join(e.root, "bin", "kubectl-clusterset")); err != nil {
		return fmt.Errorf("%w: make build makes it", err)
	}
	e.planes, err = lab.StartPlanes(
		ctx,
		func(name string) lab.Options { return lab.Options{Audit: name == "hub"} },
		"hub",
		"east",
		"west",
	)
	if err != nil {
		return err
	}
	e.kubeconfig = filepath.Join(e.planes["hub"].Dir(), "all.kubeconfig")
	if err := e.planes.WriteKubeconfig(e.kubeconfig); err != nil {
		return err
	}
	for name, c := range e.planes {
		if e.admin[name], err = c.Client(agent.Scheme()); err != nil {
			return err
		}
		if e.nodes[name], err = lab.StartKubelet(c); err != nil {
			return err
		}
	}
	commands := []string{"init --context=hub" + image}
	for _, c := range []string{"east", "west"} {
		commands = append(commands, joins(c))
	}
	for _, line := range commands {
		if out, err := e.plugin(ctx, line); err != nil {
			return fmt.Errorf("kubectl clusterset %s: %w\n%s", line, err, out)
		}
	}
	for _, c := range []string{"east", "west"} {
		if err := e.admin[c].Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			return err
		}
	}
	return nil
}

// image is any: the programs are those of this checkout.
const image = " --image=registry.example/clusterset-controller:test"

// joins is the command that makes a cluster a member.
func joins(cluster string) string {
	return fmt.Sprintf(
		"join --context=%[1]s --hub-context=hub --cluster-id=%[1]s --token-lifetime=%[2]v"+image,
		cluster,
		lifetime,
	)
}

// plugin is a kubectl clusterset command, and all that it prints.
func (e *environment) plugin(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(e.root, "bin", "kubectl-clusterset"), strings.Fields(line)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// token is the one in a member's Secret.
func (e *environment) token(ctx context.Context, cluster string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := e.admin[cluster].Get(ctx, client.ObjectKey{Namespace: "clusterset-system", Name: clusterset.SecretHub}, s)
	return s, err
}

// age leaves the token in a member's Secret only so much to live.
func (e *environment) age(ctx context.Context, cluster string, left time.Duration) error {
	s, err := e.token(ctx, cluster)
	if err != nil {
		return err
	}
	aged, err := e.planes["hub"].Age(string(s.Data["token"]), left)
	if err != nil {
		return err
	}
	s.Data["token"] = []byte(aged)
	return e.admin[cluster].Update(ctx, s)
}

// exported makes a Service of east with one endpoint, and its export, for the time of the test. It returns the slice.
func (e *environment) exported(t *testing.T, name, address string) *discoveryv1.EndpointSlice {
	t.Helper()
	port, ready, portName, protocol := int32(8080), true, "http", corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns,
			Name:      name + "-1",
			Labels:    map[string]string{discoveryv1.LabelServiceName: name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Protocol: &protocol, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		},
	}
	for _, o := range []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Name: portName, Port: 80, Protocol: protocol}}}},
		slice,
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}},
	} {
		if err := e.admin["east"].Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(e.admin["east"].Delete(context.Background(), o)); err != nil {
				t.Error(err)
			}
		})
	}
	return slice
}

// seen returns an error unless west has this address, and only it, for a name of east's.
func (e *environment) seen(ctx context.Context, name, address string) error {
	var slices discoveryv1.EndpointSliceList
	if err := e.admin["west"].List(
		ctx,
		&slices,
		client.InNamespace(ns),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: name},
	); err != nil {
		return err
	}
	var got []string
	for i := range slices.Items {
		for _, endpoint := range slices.Items[i].Endpoints {
			got = append(got, endpoint.Addresses...)
		}
	}
	if strings.Join(got, " ") != address {
		return fmt.Errorf("west has %v for %s, want %s", got, name, address)
	}
	return nil
}

// move gives a slice another address.
func (e *environment) move(ctx context.Context, slice *discoveryv1.EndpointSlice, address string) error {
	before := slice.DeepCopy()
	slice.Endpoints[0].Addresses = []string{address}
	return e.admin["east"].Patch(ctx, slice, client.MergeFrom(before))
}

func (e *environment) vip(t *testing.T, cluster, name string) string {
	t.Helper()
	imp := &mcsv1beta1.ServiceImport{}
	eventually(t, "the VIP of "+name+" in "+cluster, func(ctx context.Context) error { // endpoints come before it
		err := e.admin[cluster].Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, imp)
		if err == nil && len(imp.Spec.IPs) == 0 {
			err = errors.New("it has none")
		}
		return err
	})
	return strings.Join(imp.Spec.IPs, " ")
}

// eventually asks until there is no error.
func eventually(t *testing.T, what string, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: after %v: %v", what, limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
