package grants

import (
	"fmt"
	"net/netip"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// What ranges are for, in messages.
const (
	services = "service range"
	pods     = "pod range"
)

// Told is what a member says of itself by its ClusterProperties.
type Told struct {
	Wanted         *clusterset.BlocksWanted // nil where it leaves that to the hub
	Services, Pods []netip.Prefix
	// Unreadable are the properties that say nothing that can be understood, and why. They are as if they were not
	// there.
	Unreadable []string
}

// Read takes what was published with a ClusterProfile: another member's words, so nothing is used that
// ParseBlocks and ParseRanges do
// not let through.
func Read(properties []inventoryv1alpha1.Property) (t Told) {
	seen := map[string]bool{}
	for _, p := range properties {
		var err error
		var read func()
		switch p.Name {
		default:
			continue
		case clusterset.PropertyBlocks:
			var b clusterset.BlocksWanted
			b, err = clusterset.ParseBlocks(p.Value)
			read = func() { t.Wanted = &b }
		case clusterset.PropertyServiceRanges:
			var ranges []netip.Prefix
			ranges, err = clusterset.ParseRanges(p.Value)
			read = func() { t.Services = ranges }
		case clusterset.PropertyPodRanges:
			var ranges []netip.Prefix
			ranges, err = clusterset.ParseRanges(p.Value)
			read = func() { t.Pods = ranges }
		}
		switch {
		case seen[p.Name]:
			t.Unreadable = append(t.Unreadable, p.Name+" is there twice: the first one counts")
		case err != nil:
			t.Unreadable = append(
				t.Unreadable,
				fmt.Sprintf("%s: %.200v; it is taken as if it were not there", p.Name, err),
			)
		default:
			read()
		}
		seen[p.Name] = true
	}
	return t
}

// anything reports whether a member has said what a grant goes by. One that has not may have told nothing yet, and
// its block would lie
// where its own ranges are.
func (t *Told) anything() bool { return t.Wanted != nil || len(t.Services) > 0 || len(t.Pods) > 0 }

// ranges are all of them, by what they are for.
func (t *Told) ranges() map[string][]netip.Prefix {
	return map[string][]netip.Prefix{services: t.Services, pods: t.Pods}
}
