package grants

import (
	"fmt"
	"net/netip"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Uses of a range, in messages.
const (
	useServices = "service range"
	usePods     = "pod range"
)

// Reported is what a member reports about its ranges in its ClusterProperties.
type Reported struct {
	Wanted         *clusterset.BlocksWanted // nil: the hub's default
	Services, Pods []netip.Prefix
	Unreadable     []string // the properties that cannot be used, each with the reason
}

// Read parses the properties of a ClusterProfile. The input is not trusted: Read uses only what
// clusterset.ParseBlocks and clusterset.ParseRanges accept, and lists the rest in Unreadable.
func Read(properties []inventoryv1alpha1.Property) (r Reported) {
	seen := map[string]bool{}
	for _, p := range properties {
		var err error
		var apply func()
		switch p.Name {
		default:
			continue
		case clusterset.PropertyBlocks:
			var b clusterset.BlocksWanted
			if b, err = clusterset.ParseBlocks(p.Value); err != nil && r.Wanted == nil { // it may want all
				r.Wanted = &clusterset.BlocksWanted{IPv4: clusterset.MaxBlocksWanted, IPv6: clusterset.MaxBlocksWanted}
			}
			apply = func() { r.Wanted = &b }
		case clusterset.PropertyServiceRanges:
			var ranges []netip.Prefix
			ranges, err = clusterset.ParseRanges(p.Value)
			apply = func() { r.Services = ranges }
		case clusterset.PropertyPodRanges:
			var ranges []netip.Prefix
			ranges, err = clusterset.ParseRanges(p.Value)
			apply = func() { r.Pods = ranges }
		}
		switch {
		case seen[p.Name]:
			r.Unreadable = append(r.Unreadable,
				p.Name+" is set twice: the first one counts, and the member gets no block")
		case err != nil:
			r.Unreadable = append(r.Unreadable,
				fmt.Sprintf("%s: %.200v; the member gets no block until this is corrected", p.Name, err))
		default:
			apply()
		}
		seen[p.Name] = true
	}
	return r
}

// complete reports whether a block can be granted. Without reported Service ranges, or with a property that cannot be
// read, it could overlap them. The other properties prove nothing: users may write them before the agent runs.
func (r *Reported) complete() bool { return len(r.Unreadable) == 0 && len(r.Services) > 0 }

// ranges returns all reported ranges by use.
func (r *Reported) ranges() map[string][]netip.Prefix {
	return map[string][]netip.Prefix{useServices: r.Services, usePods: r.Pods}
}
