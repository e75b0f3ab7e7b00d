package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestID4ACloneCannotTakeItsOriginalOut: a cluster that is another's data, UID and credentials, and an admin who
// tries every way out that the program names. What the original has on the hub is not touched once.
func TestID4ACloneCannotTakeItsOriginalOut(t *testing.T) {
	e := setUp(t)
	e.eastExports(t, "cloned")
	e.clone(t, "east")
	before := e.standing(t, "east")

	in := func(command ...string) []string {
		return append(command, "--context", "clone", "--hub-context", "hub")
	}
	const patience = "--timeout=60s" // in it an agent starts, comes to lead, and sees its rival renew
	e.refused(t, []string{"this cluster may be a clone"}, in("join", "--renew", "--timeout=15s")...)
	e.refused(t, []string{"this cluster may be a clone"},
		in("leave", "--yes", patience)...)
	e.ok(t, in("join", "--renew")...) // it is leaving; other credentials help it as little
	e.refused(t, []string{"leave --force"}, in("leave", "--yes", patience)...)
	r := e.ok(t, in("leave", "--yes", "--force")...)
	if !strings.Contains(r.stderr, "east stays: it is in use; if this cluster is no clone: ") {
		t.Errorf("leave --force does not say so:\n%s", r.stderr)
	}
	e.ok(t, in("join", "--cluster-id", "copy")...)
	e.ok(t, in("leave", "--yes")...)
	if after := e.standing(t, "east"); after != before {
		t.Errorf("what east has on the hub was\n%+v\nand is\n%+v", before, after)
	}
	if err := e.imported(t.Context(), "west", "cloned", "web", 1); err != nil {
		t.Errorf("in west: %v", err)
	}
	copied := &inventoryv1alpha1.ClusterProfile{}
	if err := e.admin["hub"].Get(t.Context(), client.ObjectKey{Namespace: "clusterset", Name: "copy"},
		copied); !apierrors.IsNotFound(err) {
		t.Errorf("the clone's own claim: %v", err)
	}
	for _, c := range []string{"east", "west"} {
		e.ok(t, "leave", "--yes", "--context", c, "--hub-context", "hub")
	}
	e.forget(t, "cloned")
}

// clone is another cluster, by that name, of the original's data a while ago, as from a backup.
func (e *environment) clone(t *testing.T, original string) {
	t.Helper()
	snapshot, err := e.planes[original].Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	name := client.ObjectKey{Namespace: "clusterset", Name: original}
	var then, now coordinationv1.Lease
	if err := e.admin["hub"].Get(t.Context(), name, &then); err != nil {
		t.Fatal(err)
	}
	clone := lab.Run(t, lab.Options{})
	if err := clone.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a renewal that is not in the backup", func(ctx context.Context) error {
		err := e.admin["hub"].Get(ctx, name, &now)
		if err == nil && now.ResourceVersion == then.ResourceVersion {
			err = errors.New("there is none yet")
		}
		return err
	})
	e.planes["clone"] = clone
	t.Cleanup(func() {
		delete(e.planes, "clone")
		if err := e.planes.WriteKubeconfig(e.kubeconfig); err != nil {
			t.Error(err)
		}
	})
	if err := e.planes.WriteKubeconfig(e.kubeconfig); err != nil {
		t.Fatal(err)
	}
	e.nodes(t, "clone")
}

// standing is what the hub has of a member: what is withdrawn or published again has another revision.
type standing struct {
	profile, account, record types.UID
	left                     string
	revision                 int64
}

func (e *environment) standing(t *testing.T, cluster string) (s standing) {
	t.Helper()
	profile, account, record := &inventoryv1alpha1.ClusterProfile{}, &corev1.ServiceAccount{},
		&hubv1alpha1.ServiceExportRecord{}
	for name, o := range map[string]client.Object{cluster: profile, clusterset.AccountPrefix + cluster: account,
		clusterset.RecordName("web", "cloned", cluster): record} {
		if err := e.admin["hub"].Get(t.Context(), client.ObjectKey{Namespace: "clusterset", Name: name},
			o); err != nil {
			t.Fatal(err)
		}
	}
	return standing{profile.UID, account.UID, record.UID, profile.Annotations[clusterset.AnnotationLeft],
		record.Spec.Revision}
}
