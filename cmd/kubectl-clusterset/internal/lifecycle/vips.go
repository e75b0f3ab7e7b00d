package lifecycle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

// VIPs are the --vip flags: where members' VIPs come from. "" and nil keep the ClusterSet's setting.
type VIPs struct {
	Mode  string
	Pools []string
	Bits  map[string]int // prefix length of a block, by family: ipv4, ipv6
}

// fields returns the changed fields of a ClusterSet's spec.vips.
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

// check validates the flags on top of the current settings. The limits of bits are those of the CRD.
func (v *VIPs) check(settings hubv1alpha1.VIPs) error {
	switch hubv1alpha1.VIPMode(v.Mode) {
	case "", hubv1alpha1.VIPModeShared, hubv1alpha1.VIPModePreferred:
	default:
		return fmt.Errorf("--vip-mode %q: must be shared or preferred", v.Mode)
	}
	for _, family := range []struct {
		name        string
		least, most int
		bits        *int32
	}{{"ipv4", 8, 29, &settings.Blocks.IPv4Bits}, {"ipv6", 32, 125, &settings.Blocks.IPv6Bits}} {
		n, given := v.Bits[family.name]
		if given && (n < family.least || n > family.most) {
			return fmt.Errorf("--vip-block-bits %s=%d: a block is a /%d to a /%d", family.name, n, family.least,
				family.most)
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
		return nil // the current pools are not of this command, and doctor reports them
	}
	settings.Pools = v.Pools // with the bits of this command: a pool must hold a block
	if _, problems := grants.Usable(&settings); len(problems) > 0 {
		return fmt.Errorf("--vip-pools: %s", strings.Join(problems, "; "))
	}
	return nil
}

// checkVIPs validates the flags on top of an existing ClusterSet.
func (o *InitOptions) checkVIPs(ctx context.Context) error {
	var settings hubv1alpha1.VIPs
	var sets hubv1alpha1.ClusterSetList
	err := o.Hub.List(ctx, &sets, client.InNamespace(o.HubNamespace))
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return o.Hub.Failed(err, "listing ClusterSets")
	}
	if len(sets.Items) > 0 {
		settings = sets.Items[0].Spec.VIPs
	}
	return o.VIPs.check(settings)
}

// put sets the fields in the manifest of a new ClusterSet.
func (v *VIPs) put(set *unstructured.Unstructured) error {
	for field, value := range v.fields() {
		if err := unstructured.SetNestedField(set.Object, value, "spec", "vips", field); err != nil {
			return err
		}
	}
	return nil
}

// change sets the fields of an existing ClusterSet on the hub.
func (v *VIPs) change(ctx context.Context, o *Options, set *hubv1alpha1.ClusterSet) error {
	fields := v.fields()
	if len(fields) == 0 {
		o.Say("the hub: kept ClusterSet %s", set.Name)
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"vips": fields}})
	if err != nil {
		return err
	}
	err = o.Hub.Patch(ctx, set, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(manifest.FieldManager))
	if err != nil {
		return o.Hub.Failed(err, "changing ClusterSet %s", set.Name)
	}
	o.Say("the hub: changed ClusterSet %s: VIP mode %s, pools %s", set.Name, set.Spec.VIPs.Mode,
		cmp.Or(strings.Join(set.Spec.VIPs.Pools, ", "), "none"))
	return nil
}
