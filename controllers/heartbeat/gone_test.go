package heartbeat

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestWhatADepartedMemberHadCreatedIsGone, by the hub's word only: what it created since it came back is not, nor is
// anything of another clusterset's member of that id, or of one whom an emptied hub does not know, or a hub whose word
// is not to be had.
func TestWhatADepartedMemberHadCreatedIsGone(t *testing.T) {
	now := start
	departure := func(namespace, id string) *hubv1alpha1.ClusterSet {
		set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
		set.Status.Departed = []hubv1alpha1.Departure{
			{ClusterID: "south", At: metav1.NewTime(start.Add(-time.Hour))},
			{ClusterID: id, At: metav1.NewTime(start)},
		}
		return set
	}
	for what, c := range map[string]struct {
		set     *hubv1alpha1.ClusterSet
		silent  bool
		created time.Duration // since the departure
		gone    bool
	}{
		"created before":             {departure("prod", "west"), false, -time.Second, true},
		"created at that moment":     {departure("prod", "west"), false, 0, false},
		"created since it came back": {departure("prod", "west"), false, time.Second, false},
		"of who has not departed":    {departure("prod", "north"), false, -time.Second, false},
		"another clusterset's":       {departure("blue", "west"), false, -time.Second, false},
		"the hub was emptied":        {nil, false, -time.Second, false},
		"the hub says nothing":       {departure("prod", "west"), true, -time.Second, false},
	} {
		hub := plane(
			t,
			interceptor.Funcs{
				List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if c.silent {
						return errors.New("no answer")
					}
					return api.List(ctx, list, opts...)
				},
			},
		)
		if c.set != nil {
			if err := hub.Create(t.Context(), c.set); err != nil {
				t.Fatal(err)
			}
		}
		if got := process(
			"me",
			plane(t, interceptor.Funcs{}),
			hub,
			&now,
		).departed(t.Context(), "west", start.Add(c.created)); got != c.gone {
			t.Errorf("%s: gone %v", what, got)
		}
	}
}
