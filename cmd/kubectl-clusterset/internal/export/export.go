// Package export declares that a Service is exported to the ClusterSet, and withdraws that. It writes ServiceExports
// and nothing else.
package export

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Options say what to export, by names, or by a selector or all of a namespace.
type Options struct {
	Namespace string
	Names     []types.NamespacedName
	Selector  string
	All       bool
	Delete    bool // withdraw the exports
	DryRun    cluster.DryRun
}

// Run writes the ServiceExports, and returns a line for each. It ends with the first error.
func Run(ctx context.Context, c *cluster.Cluster, o *Options) (lines []string, err error) {
	role := cluster.RoleOf(ctx, c)
	if err := role.OnlyHub(); err != nil {
		return nil, err
	}
	names, write := o.Names, create
	if len(names) == 0 {
		if names, err = selected(ctx, c, o); err != nil {
			return nil, err
		}
	}
	if o.Delete {
		write = remove
	}
	for _, name := range names {
		line, err := write(ctx, c, name, o.DryRun == cluster.DryRunNone)
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// selected returns the Services that a selector matches and that can be exported; to delete exports, those of Services
// that it matches, or all.
func selected(ctx context.Context, c *cluster.Cluster, o *Options) (out []types.NamespacedName, err error) {
	selector, err := labels.Parse(o.Selector)
	if err != nil {
		return nil, fmt.Errorf("-l: %w", err)
	}
	in := client.InNamespace(o.Namespace)
	var services corev1.ServiceList
	if err := c.List(ctx, &services, in, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, c.Failed(err, "listing Services in %s", o.Namespace)
	}
	matched := map[string]bool{}
	for i := range services.Items {
		s := &services.Items[i]
		matched[s.Name] = true
		if !o.Delete && s.Spec.Type != corev1.ServiceTypeExternalName && !kube.Owned(s) && s.Name != "kubernetes" {
			out = append(out, client.ObjectKeyFromObject(s))
		}
	}
	if o.Delete {
		var exports mcsv1beta1.ServiceExportList
		if err := c.List(ctx, &exports, in); err != nil {
			return nil, failed(c, err, "listing", types.NamespacedName{Namespace: o.Namespace})
		}
		for i := range exports.Items {
			if e := &exports.Items[i]; o.All || matched[e.Name] {
				out = append(out, client.ObjectKeyFromObject(e))
			}
		}
	}
	if len(out) == 0 {
		what, look := "Service", "services --show-labels"
		if o.Delete {
			what, look = "ServiceExport", "serviceexports"
		}
		return nil, report.Fail(c.Command("kubectl -n "+o.Namespace+" get "+look),
			"%s: no %s in namespace %s is selected", c.Name, what, o.Namespace)
	}
	return out, nil
}

// create exports a Service, which must exist. An existing ServiceExport stays as it is.
func create(ctx context.Context, c *cluster.Cluster, name types.NamespacedName, write bool) (string, error) {
	service, err := kube.Get[*corev1.Service](ctx, c, name)
	switch {
	case err != nil:
		return "", c.Failed(err, "reading Service %s", name)
	case service == nil:
		return "", missing(ctx, c, "Service", name)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "", fmt.Errorf("%s: Service %s is of type ExternalName, which cannot be exported", c.Name, name)
	}
	line := "serviceexport/" + name.Name
	if !write {
		existing, err := kube.Get[*mcsv1beta1.ServiceExport](ctx, c, name)
		if err != nil || existing != nil {
			return line + " unchanged", failed(c, err, "reading", name)
		}
		return line + " created", nil
	}
	e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	if err = c.Create(ctx, e, client.FieldOwner(manifest.FieldManager)); apierrors.IsAlreadyExists(err) {
		return line + " unchanged", nil
	}
	return line + " created", failed(c, err, "creating", name)
}

// missing is the error if an object does not exist, or its namespace, as far as the user may know.
func missing(ctx context.Context, c *cluster.Cluster, kind string, name types.NamespacedName) error {
	ns, err := kube.Get[*corev1.Namespace](ctx, c, types.NamespacedName{Name: name.Namespace})
	if err == nil && ns == nil {
		return report.Fail(c.Command("kubectl get namespaces"), "%s: there is no namespace %s", c.Name, name.Namespace)
	}
	return report.Fail(c.Command("kubectl -n "+name.Namespace+" get "+strings.ToLower(kind)+"s"),
		"%s: there is no %s %s", c.Name, kind, name)
}

// remove withdraws an export. Without one, it returns an error.
func remove(ctx context.Context, c *cluster.Cluster, name types.NamespacedName, write bool) (string, error) {
	e, err := kube.Get[*mcsv1beta1.ServiceExport](ctx, c, name)
	switch {
	case err != nil:
		return "", failed(c, err, "reading", name)
	case e == nil:
		return "", missing(ctx, c, "ServiceExport", name)
	case write:
		err = kube.Delete(ctx, c.Client, e)
	}
	return "serviceexport/" + name.Name + " deleted", failed(c, err, "deleting", name)
}

func failed(c *cluster.Cluster, err error, doing string, name types.NamespacedName) error {
	err = c.Failed(err, "%s ServiceExport %s", doing, name)
	if meta.IsNoMatchError(err) {
		return report.WithRemedy(err, "this cluster is no member; to make it one: "+
			c.Command(facts.Join+" --cluster-id ID"))
	}
	return err
}
