package lifecycle

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// render fills what join applies on both sides. Arguments that somebody added to the agent stay.
func (j *join) render(ctx context.Context) error {
	runs, err := j.Member.Container(ctx, manifest.AgentDeployment)
	if err != nil {
		return err
	}
	has := runs
	if has == nil && j.Image == "" && j.Release == "" { // a build without a release: the version that the hub has
		if has, err = j.Hub.Container(ctx, manifest.HubDeployment(j.HubNamespace)); err != nil {
			return err
		}
	}
	image, err := j.image(has)
	if err != nil {
		return err
	}
	values := manifest.Values{Namespace: j.HubNamespace, ClusterID: j.ClusterID, Image: image}
	values.Args = append([]string{"--cluster-id=" + j.ClusterID}, extraArgs(runs, "cluster-id", "hub-kubeconfig",
		"hub-namespace")...)
	if j.here, err = manifest.Render(manifest.Member, values); err != nil {
		return err
	}
	j.hubSide, err = manifest.Render(manifest.HubMember, manifest.Values{Namespace: j.HubNamespace,
		ClusterID: j.ClusterID})
	if err != nil {
		return err
	}
	profile := firstOf(j.hubSide, "ClusterProfile")
	annotations := profile.GetAnnotations()
	annotations[clusterset.AnnotationJoiningUID] = j.uid
	profile.SetAnnotations(annotations)
	return nil
}

// printAll is --dry-run. It omits what exists and would stay.
func (j *join) printAll(ctx context.Context) error {
	secret, _, err := j.credentialsOf("(issued by the hub)")
	if err != nil {
		return err
	}
	id := object(aboutv1beta1.GroupVersion.WithKind("ClusterProperty"), "", clusterset.PropertyID)
	id.Object["spec"] = map[string]any{"value": j.ClusterID}
	hub, here := j.hubSide, []*unstructured.Unstructured{secret}
	if j.Renew || j.mine {
		hub = without(hub, "ClusterProfile")
	}
	if !j.Renew && j.id == nil {
		here = append([]*unstructured.Unstructured{id}, here...)
	}
	if !j.Renew {
		here = append(j.here, here...)
	}
	return errors.Join(j.print(ctx, j.Hub, hub), j.print(ctx, j.Member, here))
}
