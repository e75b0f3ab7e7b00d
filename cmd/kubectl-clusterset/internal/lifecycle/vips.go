package lifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
)

// VIPs is where members' VIPs come from, as far as it is to be other than it is: "" and nil leave it.
type VIPs struct {
	Mode  string
	Pools []string
	Bits  map[string]int // of a block, by family: ipv4, ipv6
}

// fields are those of a ClusterSet's spec.vips that are asked for.
func (v *VIPs) fields() map[string]any {
	out := map[string]any{}
	if v.Mode != "" {
		out["mode"] = v.Mode
	}
	if v.Pools != nil {
		pools := make([]any, 0, len(v.Pools))
		for _, p := range v.Pools {
			pools = append(pools, p)
		}
		out["pools"] = pools
	}
	if len(v.Bits) > 0 {
		bits := map[string]any{}
		for family, n := range v.Bits {
			bits[family+"Bits"] = int64(n)
		}
		out["blocks"] = bits
	}
	return out
}

// check tells what is wrong with it, on top of what is there.
func (v *VIPs) check(is hubv1alpha1.VIPs) error {
	modes := []string{string(hubv1alpha1.VIPModeShared), string(hubv1alpha1.VIPModePreferred)}
	if v.Mode != "" && !slices.Contains(modes, v.Mode) {
		return fmt.Errorf("--vip-mode %q is none of %s", v.Mode, strings.Join(modes, ", "))
	}
	for _, family := range []struct {
		name        string
		least, most int
		bits        *int32
	}{{"ipv4", 8, 29, &is.Blocks.IPv4Bits}, {"ipv6", 32, 125, &is.Blocks.IPv6Bits}} {
		n, given := v.Bits[family.name]
		if given && (n < family.least || n > family.most) {
			return fmt.Errorf("--vip-block-bits %s=%d: a block is a /%d to a /%d", family.name, n, family.least, family.most)
		}
		if given {
			*family.bits = int32(n)
		}
	}
	for family := range v.Bits {
		if family != "ipv4" && family != "ipv6" {
			return fmt.Errorf("--vip-block-bits %s=…: must be ipv4=N, ipv6=N, or both", family)
		}
	}
	if v.Pools == nil {
		return nil // what is there is not at issue
	}
	is.Pools = v.Pools
	if _, problems := grants.Usable(&is); len(problems) > 0 {
		return fmt.Errorf("--vip-pools: %s", strings.Join(problems, "; "))
	}
	return nil
}

// checkVIPs looks at what is asked for, on top of what a ClusterSet that is there says.
func (o *InitOptions) checkVIPs(ctx context.Context) error {
	var is hubv1alpha1.VIPs
	var sets hubv1alpha1.ClusterSetList
	if err := o.Hub.List(ctx, &sets, client.InNamespace(o.HubNamespace)); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", o.Hub.Name, err)
	}
	if len(sets.Items) > 0 {
		is = sets.Items[0].Spec.VIPs
	}
	return o.VIPs.check(is)
}

// put has a ClusterSet that is to be made say what is asked for.
func (v *VIPs) put(set *unstructured.Unstructured) error {
	for field, value := range v.fields() {
		if err := unstructured.SetNestedField(set.Object, value, "spec", "vips", field); err != nil {
			return err
		}
	}
	return nil
}

// change brings a ClusterSet that is there to what is asked for, and leaves the rest of it.
func (v *VIPs) change(ctx context.Context, o *Options, set *hubv1alpha1.ClusterSet) error {
	fields := v.fields()
	if len(fields) == 0 {
		o.Say("the hub: ClusterSet %s is there, and left as it is", set.Name)
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"vips": fields}})
	if err != nil {
		return err
	}
	if err := o.Hub.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(manifest.FieldManager)); err != nil {
		return fmt.Errorf("%s: ClusterSet %s: %w", o.Hub.Name, set.Name, err)
	}
	o.Say("the hub: ClusterSet %s is there, and has VIPs of mode %s now, pools: %s", set.Name, set.Spec.VIPs.Mode, orNone(set.Spec.VIPs.Pools))
	return nil
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
