// Package cluster is a client of one API server: it reads its version, checks rights, applies and deletes objects,
// forwards ports, and waits. Its callers know which objects make a member or a hub.
package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Cluster is one API server.
type Cluster struct {
	client.Client
	Name   string // for messages: "the hub", "this cluster"
	Config *rest.Config
	Flags  report.Flags
}

// Command returns a command for this cluster.
func (c *Cluster) Command(command string) string {
	if c.Name == report.Hub {
		return c.Flags.AtHub(command)
	}
	return c.Flags.Here(command)
}

// Scheme returns a scheme with all kinds that this program uses as Go types.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextensionsv1.AddToScheme, mcsv1beta1.Install, hubv1alpha1.AddToScheme,
		aboutv1beta1.AddToScheme, inventoryv1alpha1.AddToScheme, externaldnsv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// New returns a Cluster. It does not contact the API server.
func New(name string, cfg *rest.Config) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // no client-side rate limit: API Priority and Fairness limits requests
	cfg.WarningHandler = rest.NoWarnings{}
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Cluster{Client: c, Name: name, Config: cfg}, nil
}

// Failed returns err with the cluster and what was done there, or nil without an error.
func (c *Cluster) Failed(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s failed: %w", c.Name, fmt.Sprintf(what, args...), err)
}

// Properties reads the ClusterProperties with the cluster's ID and with its ClusterSet. Each is nil if it, or the kind,
// does not exist.
func (c *Cluster) Properties(ctx context.Context) (id, set *aboutv1beta1.ClusterProperty, err error) {
	for name, into := range map[string]**aboutv1beta1.ClusterProperty{clusterset.PropertyID: &id,
		clusterset.PropertySet: &set} {
		p, err := kube.Property(ctx, c, name)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, nil, c.Failed(err, "reading ClusterProperty %s", name)
		}
		*into = p
	}
	return id, set, nil
}

// HubOf returns the ClusterSets whose hub a cluster is, as far as the user may read it.
func HubOf(ctx context.Context, c *Cluster) (out []string) {
	var sets hubv1alpha1.ClusterSetList
	_ = c.List(ctx, &sets)
	for i := range sets.Items {
		out = append(out, sets.Items[i].Namespace)
	}
	return out
}

// RoleOf returns what a cluster is in ClusterSets, as far as the user may read it.
func RoleOf(ctx context.Context, c *Cluster) (r facts.Role) {
	r.HubOf = HubOf(ctx, c)
	id, set, err := c.Properties(ctx)
	switch {
	case err != nil:
		return facts.Role{} // it may be a member
	case set == nil:
		return r
	}
	known, _ := MembershipOf(ctx, c)
	namespace := cmp.Or(known.Status.HubNamespace, set.Spec.Value)
	if id != nil && !slices.Contains(r.HubOf, namespace) {
		name := client.ObjectKey{Namespace: namespace, Name: id.Spec.Value}
		own, err := kube.Get[*coordinationv1.Lease](ctx, c, name)
		if err == nil && !facts.Expired(own, time.Now()) || c.Config != nil && known.Status.Hub == c.Config.Host {
			return r // it was a member of a ClusterSet of its own, which is lost
		}
	}
	r.MemberOf, r.Server = set.Spec.Value, known.Status.Hub
	return r
}

// MembershipOf returns what a cluster's agent knows of its membership; nothing if no agent has written it.
func MembershipOf(ctx context.Context, c *Cluster) (out hubv1alpha1.Membership, err error) {
	err = c.Get(ctx, client.ObjectKey{Name: hubv1alpha1.MembershipName}, &out)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return hubv1alpha1.Membership{}, nil
	}
	return out, c.Failed(err, "reading Membership %s", hubv1alpha1.MembershipName)
}

// Deployment returns a Deployment in clusterset-system, or nil if there is none.
func (c *Cluster) Deployment(ctx context.Context, name string) (*appsv1.Deployment, error) {
	d, err := kube.Get[*appsv1.Deployment](ctx, c, client.ObjectKey{Namespace: kube.SystemNamespace, Name: name})
	return d, c.Failed(err, "reading Deployment %s/%s", kube.SystemNamespace, name)
}

// Server is what an API server reports about itself.
type Server struct {
	Version string
	Now     time.Time // its clock, to the second
}

// Ask returns the version and the clock of the API server. Without a valid Date header, the clock is the local one. The
// error is an API status if the server refuses.
func (c *Cluster) Ask(ctx context.Context) (s Server, err error) {
	httpClient, err := rest.HTTPClientFor(c.Config)
	base, _, err2 := rest.DefaultServerUrlFor(c.Config)
	if err = errors.Join(err, err2); err != nil {
		return s, c.Failed(err, "connecting")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("/version").String(), nil)
	if err != nil {
		return s, c.Failed(err, "connecting")
	}
	resp, err := httpClient.Do(r)
	if err != nil {
		return s, c.Failed(err, "connecting")
	}
	defer resp.Body.Close()
	if s.Now, err = http.ParseTime(resp.Header.Get("Date")); err != nil {
		s.Now = time.Now()
	}
	var v version.Info
	if resp.StatusCode != http.StatusOK {
		return s, c.Failed(&apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(resp.StatusCode),
			Message: resp.Status}}, "reading %s", r.URL)
	}
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return s, c.Failed(err, "reading %s", r.URL)
	}
	s.Version = v.GitVersion
	return s, nil
}

// pause is the time between two attempts.
const pause = 250 * time.Millisecond

// Until calls look until it is done. It retries errors of look, too. After limit, it returns an error with the last
// reason or error of look; if ctx is canceled, context.Canceled.
func Until(ctx context.Context, limit time.Duration, look func(context.Context) (done bool, why string,
	err error)) error {
	last := errors.New("unknown")
	err := wait.PollUntilContextTimeout(ctx, pause, limit, true, func(ctx context.Context) (bool, error) {
		done, why, err := look(ctx)
		switch {
		case done || ctx.Err() != nil:
		case err != nil:
			last = err
		case why != "":
			last = errors.New(why)
		}
		return done, nil
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("timed out after %v: %w", limit, last)
	}
	return err
}

// PodsOf returns the Pods of a Deployment.
func (c *Cluster) PodsOf(ctx context.Context, d *appsv1.Deployment) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, err
	}
	return c.Pods(ctx, d.Namespace, selector)
}

// Pods returns the Pods of a namespace that a selector matches.
func (c *Cluster) Pods(ctx context.Context, namespace string, selector labels.Selector) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	return pods.Items, err
}

// AwaitRollout waits until all replicas of a Deployment are new, and so many of them available, or all if it has fewer.
func (c *Cluster) AwaitRollout(ctx context.Context, name types.NamespacedName, available int32, limit time.Duration,
	say Say) error {
	what := "the new replicas of Deployment " + name.Name
	return say.Until(ctx, limit, what, func(ctx context.Context) (bool, string, error) {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, name, d); err != nil {
			return false, "", err
		}
		pods, err := c.PodsOf(ctx, d)
		if err != nil && !apierrors.IsForbidden(err) { // they only show why it takes long
			return false, "", err
		}
		done, why := facts.RolledOut(d, pods, available)
		if done && why != "" {
			say("%s: Deployment %s: %s", c.Name, name.Name, why)
		}
		return done, why, nil
	})
}
