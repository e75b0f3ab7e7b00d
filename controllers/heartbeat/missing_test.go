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

// TestRecordsFromBeforeADepartureAreGone, but no later ones, and none of another clusterset's
// member with that cluster ID. Nothing is gone if the hub lost its data or does not answer.
func TestRecordsFromBeforeADepartureAreGone(t *testing.T) {
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
		set      *hubv1alpha1.ClusterSet
		noAnswer bool
		created  time.Duration // since the departure
		gone     bool
	}{
		"created before":                    {departure("prod", "west"), false, -time.Second, true},
		"created at that moment":            {departure("prod", "west"), false, 0, false},
		"created since it came back":        {departure("prod", "west"), false, time.Second, false},
		"of a member that has not departed": {departure("prod", "north"), false, -time.Second, false},
		"another clusterset's":              {departure("blue", "west"), false, -time.Second, false},
		"the hub was emptied":               {nil, false, -time.Second, false},
		"the hub does not answer":           {departure("prod", "west"), true, -time.Second, false},
	} {
		hub := plane(
			t,
			interceptor.Funcs{
				List: func(
					ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption,
				) error {
					if c.noAnswer {
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
