package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// compared are the kinds of manifests that are compared. CRDs are not: the lists of their objects show what is served.
var compared = map[string]client.ObjectList{
	"ValidatingAdmissionPolicy":        &admissionregistrationv1.ValidatingAdmissionPolicyList{},
	"ValidatingAdmissionPolicyBinding": &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
	"ClusterRole":                      &rbacv1.ClusterRoleList{},
	"ClusterRoleBinding":               &rbacv1.ClusterRoleBindingList{},
	"Role":                             &rbacv1.RoleList{},
	"RoleBinding":                      &rbacv1.RoleBindingList{},
}

// drift compares this release's manifests of a member with what is there.
func (r *reader) drift(ctx context.Context, c *cluster.Cluster) (err error) {
	m := r.Snapshot.Member
	if r.earlier(Drift) && r.Earlier.Member != nil {
		of := r.Earlier.Member
		m.Drift, m.DNSDrift, m.BesideDrift = of.Drift, of.DNSDrift, of.BesideDrift
		return nil
	}
	found := map[string][]unstructured.Unstructured{}
	if m.Drift, err = differences(ctx, c, found, manifest.Values{Namespace: r.Snapshot.Namespace},
		manifest.Member); err != nil {
		return err
	}
	role, err := differences(ctx, c, found, manifest.Values{}, manifest.CoreDNS+"/role")
	lacks := func(binding string, account map[string]any) []string {
		if len(role) > 0 || slices.ContainsFunc(found["ClusterRoleBinding"], func(b unstructured.Unstructured) bool {
			role, _, _ := unstructured.NestedString(b.Object, "roleRef", "name")
			group := map[string]any{"kind": "Group"} // that the account may be in
			return role == "clusterset-dns:coredns" && (within([]any{account}, b.Object["subjects"]) ||
				within([]any{group}, b.Object["subjects"]))
		}) {
			return role
		}
		return []string{"ClusterRoleBinding " + binding + " is missing, or for another account"}
	}
	// The account of the cluster's CoreDNS has another name in some distributions. If it is not known, any counts.
	account := map[string]any{}
	if d, _ := dns.Deployment(ctx, c); d != nil {
		account = dns.Subject(d)
	}
	m.DNSDrift = lacks("clusterset-dns:coredns", account)
	m.BesideDrift = lacks("clusterset-dns:coredns-beside", map[string]any{"kind": "ServiceAccount",
		"namespace": "clusterset-dns", "name": "coredns"})
	return err
}

func (r *reader) hubDrift(ctx context.Context, c *cluster.Cluster) (err error) {
	if r.earlier(HubDrift) && r.Earlier.Hub != nil {
		r.Snapshot.Hub.Drift = r.Earlier.Hub.Drift
		return nil
	}
	r.Snapshot.Hub.Drift, err = differences(ctx, c, map[string][]unstructured.Unstructured{},
		manifest.Values{Namespace: r.Snapshot.Namespace}, manifest.Hub, manifest.ClusterSet)
	if err != nil {
		return err
	}
	ns, err := kube.Get[*corev1.Namespace](ctx, c, types.NamespacedName{Name: r.Snapshot.Namespace})
	if ns != nil && ns.Labels[clusterset.LabelSet] == "" { // no policy applies there
		lacks := "Namespace " + ns.Name + " lacks the label " + clusterset.LabelSet
		r.Snapshot.Hub.Drift = append(r.Snapshot.Hub.Drift, lacks)
	}
	return err
}

// differences returns what of the manifests in folders is missing in a cluster or differs there. It keeps what it has
// listed, by kind and namespace, in found.
func differences(ctx context.Context, c *cluster.Cluster, found map[string][]unstructured.Unstructured,
	v manifest.Values, folders ...string) (out []string, err error) {
	for _, folder := range folders {
		objects, err := manifest.Render(folder, v)
		if err != nil {
			return nil, err
		}
		for _, want := range objects {
			list, is := compared[want.GetKind()]
			if !is {
				continue
			}
			key := want.GetKind()
			if want.GetNamespace() != "" {
				key += " in " + want.GetNamespace()
			}
			if _, listed := found[key]; !listed {
				if found[key], err = objectsOf(ctx, c, list, want.GetNamespace()); err != nil {
					return nil, err
				}
			}
			i := slices.IndexFunc(found[key], func(o unstructured.Unstructured) bool {
				return o.GetName() == want.GetName()
			})
			switch {
			case i < 0:
				out = append(out, fmt.Sprintf("%s %s is missing", want.GetKind(), want.GetName()))
			case !within(content(want.Object), content(found[key][i].Object)):
				out = append(out, fmt.Sprintf("%s %s differs", want.GetKind(), want.GetName()))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

func objectsOf(ctx context.Context, c *cluster.Cluster, kind client.ObjectList, namespace string,
) (out []unstructured.Unstructured, err error) {
	l := kind.DeepCopyObject().(client.ObjectList)
	if err := c.List(ctx, l, in(namespace)); err != nil {
		return nil, err
	}
	return out, meta.EachListItem(l, func(o runtime.Object) error {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		out = append(out, unstructured.Unstructured{Object: object})
		return err
	})
}

// content returns the fields of an object that make it what it is.
func content(o map[string]any) map[string]any {
	out := map[string]any{}
	for key, v := range o {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, key) {
			out[key] = v
		}
	}
	return out
}

// within reports whether all that is wanted is there. The API server adds defaults, and others may have added items to
// lists, such as rules. White space does not count: kustomize folds the lines of an expression otherwise than kubectl
// apply -f and the charts.
func within(want, there any) bool {
	switch w := want.(type) {
	case map[string]any:
		t, is := there.(map[string]any)
		for key, v := range w {
			if !is || !within(v, t[key]) {
				return false
			}
		}
	case []any:
		t, _ := there.([]any)
		return !slices.ContainsFunc(w, func(v any) bool {
			return !slices.ContainsFunc(t, func(x any) bool { return within(v, x) })
		})
	case string:
		t, is := there.(string)
		return is && slices.Equal(strings.Fields(w), strings.Fields(t)) || w == "" && there == nil
	default:
		return fmt.Sprint(want) == fmt.Sprint(there)
	}
	return true
}

// Corefile returns the Corefile of the cluster's CoreDNS, and why it does not parse. It is nil if none was read.
func (m *Member) Corefile() (*corefile.Corefile, error) {
	if m.DNS.Corefile() == "" {
		return nil, nil
	}
	return corefile.Parse(m.DNS.Imported())
}

// Plugin returns the line of our plugin in the Corefile of the cluster's CoreDNS that answers the zone; nil if there is
// none. c is nil if the Corefile was not read or does not parse.
func (m *Member) Plugin() (c *corefile.Corefile, line *corefile.Line) {
	c, _ = m.Corefile()
	if c == nil {
		return nil, nil
	}
	if b := c.For(dns.Zone, "53"); b != nil {
		line = b.Stanza("multicluster", dns.Zone)
	}
	return c, line
}
