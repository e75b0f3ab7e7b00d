package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
)

// DryRun is the value of kubectl's flag --dry-run.
type DryRun string

// The values of --dry-run.
const (
	DryRunNone   DryRun = "none"
	DryRunClient DryRun = "client" // print what would be written
	DryRunServer DryRun = "server" // print it, and have the API server check it without storing it
)

// AddTo adds the flag --dry-run. Without a value, it means client.
func (d *DryRun) AddTo(flags *pflag.FlagSet) {
	*d = DryRunNone
	flags.Var(d, "dry-run", "none, client (print what would be written) or server (have the API server check it, too)")
	flags.Lookup("dry-run").NoOptDefVal = string(DryRunClient)
}

// Set is pflag.Value's.
func (d *DryRun) Set(s string) error {
	switch *d = DryRun(s); *d {
	case DryRunNone, DryRunClient, DryRunServer:
		return nil
	}
	return errors.New("must be none, client or server")
}

// String is pflag.Value's.
func (d *DryRun) String() string { return string(*d) }

// Type is pflag.Value's.
func (d *DryRun) Type() string { return "dryRun" }

// Rehearse has the API server check that it would apply objects, and stores nothing. It cannot check objects whose
// kind or namespace does not exist yet, and reports that.
func (c *Cluster) Rehearse(ctx context.Context, out io.Writer, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			existing := &unstructured.Unstructured{}
			existing.SetGroupVersionKind(o.GroupVersionKind())
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), existing); err == nil {
				if why := manifest.Keep(existing, o); why != "" {
					fmt.Fprintf(out, "%s: kept: %s\n", Title(o), why)
					continue
				}
			}
		}
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
			client.FieldOwner(manifest.FieldManager), client.ForceOwnership, client.DryRunAll)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			fmt.Fprintf(out, "%s: not checked, its kind or namespace does not exist yet\n", Title(o))
		case err != nil:
			return c.Failed(err, "applying %s", Title(o))
		default:
			fmt.Fprintf(out, "%s: accepted (server dry run)\n", Title(o))
		}
	}
	return nil
}
