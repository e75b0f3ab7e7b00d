package serviceimport

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
)

// importer is the reconciler with a memory.
type importer struct {
	*reconciler
	memory
}

// memory is what the hub has shown of the records of each name. An imported slice remembers its own record; nothing does for one that is not
// imported: where a name is exported anew, and the hub was restored meanwhile, endpoints of the earlier export would be imported until the
// owner's word arrives.
type memory struct {
	mu    sync.Mutex
	shown map[types.NamespacedName]map[string]word
}

// word is the latest that an owner said of a record.
type word struct {
	created, revision int64
	behind            time.Time // since when the hub has shown an earlier one
}

// patience with an owner whose record is behind its last word: it looks itself whether the hub has what it wrote (publish). An owner that has lost
// its memory may have nothing more to say, so what the hub shows counts then.
const patience = 45 * time.Second

// behind takes in what the hub shows now, and tells which records are behind what it has shown. One that it does not show is forgotten.
func (m *memory) behind(name types.NamespacedName, records []*hubv1alpha1.EndpointRecord, now time.Time) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.shown[name]
	if len(records) == 0 {
		delete(m.shown, name)
		return nil
	}
	if m.shown == nil {
		m.shown = map[types.NamespacedName]map[string]word{}
	}
	is, behind := make(map[string]word, len(records)), map[string]bool{}
	for _, rec := range records {
		said := word{created: rec.CreationTimestamp.Unix(), revision: rec.Spec.Revision}
		last := was[rec.Name]
		src := endpoints.Source{Created: last.created}
		src.Revision = last.revision
		if src.Older(said.created, said.revision) {
			if last.behind.IsZero() {
				last.behind = now
			}
			if now.Sub(last.behind) < patience {
				said, behind[rec.Name] = last, true
			}
		}
		is[rec.Name] = said
	}
	m.shown[name] = is
	return behind
}
