package endpoints

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// TestATriggerIsOfWhatItChanged: who measures latencies takes the time in an imported slice for the beginning of the
// change that brought it.
func TestATriggerIsOfWhatItChanged(t *testing.T) {
	const first, second = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00.5Z"
	imp := imported(merged(map[string]string{"http": "http"}))
	was := func() *Source {
		src := source("a", "http")
		src.LastChangeTriggerTime = first
		return src
	}
	created := Plan([]*discoveryv1.EndpointSlice{Desired(was(), imp)}, nil).Create
	if len(created) != 1 || created[0].Annotations[corev1.EndpointsLastChangeTriggerTime] != "" {
		t.Fatalf("what was published before its import begins at %v", created[0].Annotations)
	}
	for name, c := range map[string]struct {
		change func(*Source) *Source
		writes int
		want   string
	}{
		"nothing": {func(s *Source) *Source { return s }, 0, ""},
		"an address": {func(s *Source) *Source {
			s.Revision, s.Endpoints, s.LastChangeTriggerTime = 8, s.Endpoints[:1], second
			return s
		}, 1, second},
		"readiness": {func(s *Source) *Source {
			s.Revision, s.Endpoints[1].Ready, s.LastChangeTriggerTime = 8, to(true), second
			return s
		}, 1, second},
		"an address, of a source that has no time": {func(s *Source) *Source {
			s.Revision, s.Endpoints, s.LastChangeTriggerTime = 8, s.Endpoints[:1], ""
			return s
		}, 1, ""},
		"a port": {func(s *Source) *Source {
			s.Revision, s.Ports[0].Target, s.LastChangeTriggerTime = 8, to(int32(9090)), second
			return s
		}, 1, ""},
		"only the time": {func(s *Source) *Source {
			s.LastChangeTriggerTime = second
			return s
		}, 0, ""},
		"this cluster, which finds the source expired": {func(s *Source) *Source {
			s.LastChangeTriggerTime = second
			expired := map[string]liveness.State{"a": {Expired: true, OnExpiry: "NotReady"}}
			return Expire([]*Source{s}, expired)[0]
		}, 1, ""},
	} {
		desired := []*discoveryv1.EndpointSlice{Desired(c.change(was()), imp)}
		got := Plan(desired, created).Update
		if len(got) != c.writes {
			t.Errorf("%s changed: %d writes, want %d", name, len(got), c.writes)
			continue
		}
		for _, u := range got {
			if at := u.Annotations[corev1.EndpointsLastChangeTriggerTime]; at != c.want {
				t.Errorf("%s changed: the imported slice has the time %q, want %q", name, at, c.want)
			}
			// What changes next without a time has none.
			src := c.change(was())
			src.Revision, src.Ports[0].Target = 9, to(int32(7070))
			next := Plan([]*discoveryv1.EndpointSlice{Desired(src, imp)}, got).Update
			if len(next) != 1 || next[0].Annotations[corev1.EndpointsLastChangeTriggerTime] != "" {
				t.Errorf("%s changed, then a port: %+v", name, next)
			}
		}
		if again := Plan(desired, append(got, created...)[:1]); len(again.Update)+len(again.Create) > 0 {
			t.Errorf("%s changed: it is written again", name)
		}
	}
}
