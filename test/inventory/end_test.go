package inventory

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What deploy/hub/README.md tells to do at the end of a clusterset ends it; and so does, where the namespace was
// deleted first, the rest.
func TestREADMEsEndOfAClusterSet(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	const ns = "green"
	p := e.program(t, ns)
	for _, inOrder := range []bool{true, false} {
		if !inOrder {
			p.Kill()
			must(t, e.clusterSet(ctx, ns))
			must(t, p.again(ctx))
		}
		m := e.newMember(t, ns, "end")
		m.isMember(t)
		m.publish(t, 1)
		m.stop()
		if inOrder {
			_, err := e.cp.Kubectl(ctx, "", "-n", ns, "delete", "clusterprofiles", "--all")
			must(t, err)
			e.gone(t, ns, "end")
		}
		must(t, e.admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
		must(t, until(ctx, func() error {
			var left corev1.Namespace
			err := e.admin.Get(ctx, client.ObjectKey{Name: ns}, &left)
			if apierrors.IsNotFound(err) {
				return nil
			}
			if !inOrder {
				_, patched := e.cp.Kubectl(
					ctx,
					"",
					"-n",
					ns,
					"patch",
					"clusterprofile",
					"end",
					"--type=merge",
					"-p",
					`{"metadata":{"finalizers":null}}`,
				)
				if patched != nil && !strings.Contains(patched.Error(), "NotFound") {
					err = errors.Join(err, patched)
				}
			}
			return errors.Join(err, fmt.Errorf("namespace %s is still there: %+v", ns, left.Status.Conditions))
		}))
	}
}

// The namespace clusterset-system enforces the Pod Security Standard "restricted".
func TestProgramsPodIsRestricted(t *testing.T) {
	e := setUp(t)
	var d appsv1.Deployment
	must(
		t,
		e.admin.Get(t.Context(), client.ObjectKey{Namespace: "clusterset-system", Name: "clusterset-hub-" + blue}, &d),
	)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace,
			Name:      "like-the-programs",
			Labels:    d.Spec.Template.Labels,
		},
		Spec: d.Spec.Template.Spec,
	}
	must(t, e.admin.Create(t.Context(), pod, client.DryRunAll))
	if got := strings.Join(d.Spec.Template.Spec.Containers[0].Args, " "); got != "hub --hub-namespace=blue" {
		t.Errorf("it runs with %s", got)
	}
}

// program is that of a clusterset which the test makes.
func (e *environment) program(t *testing.T, ns string) *program {
	t.Helper()
	must(t, e.clusterSet(t.Context(), ns))
	p, err := e.run(t.Context(), ns)
	must(t, err)
	t.Cleanup(p.Stop)
	return p
}
