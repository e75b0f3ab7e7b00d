package liveness

import (
	"fmt"
	"testing"
)

func names(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("s%d.shop.a", i))
	}
	return out
}

// TestAbsenceIsNotDeletion (DESIGN §2): a missing record is gone only if its owner's Lease states the set that the
// hub shows, and not if more than ten and more than half are missing at once.
func TestAbsenceIsNotDeletion(t *testing.T) {
	for _, c := range []struct {
		name                   string
		stated                 string
		shown, withdrawn, held []string
		want, complains        bool
	}{
		{"one is gone, and the owner says so", Statement(names(1, 20)), names(1, 20), nil, names(0, 20), true, false},
		{"in another order", Statement([]string{"b.x.a", "a.x.a"}), []string{"a.x.a", "b.x.a"}, nil,
			[]string{"c.x.a"}, true, false},
		{"the owner states what is missing", Statement(names(0, 20)), names(1, 20), nil, names(0, 20), false, false},
		{"the owner states nothing", "", names(1, 20), nil, names(0, 20), false, false},
		{"an emptied hub, with the last statement", Statement(names(0, 20)), nil, nil, names(0, 20), false, false},
		{"ten of ten gone at once", Statement(nil), nil, nil, names(0, 10), true, false},
		{"eleven of eleven gone at once", Statement(nil), nil, nil, names(0, 11), false, true},
		{"eleven of twenty-two are no more than half", Statement(names(11, 22)), names(11, 22), nil, names(0, 22),
			true, false},
		{"twelve of twenty-two are", Statement(names(12, 22)), names(12, 22), nil, names(0, 22), false, true},
		{"all withdrawn by their owner", Statement(nil), nil, names(0, 20), names(0, 20), true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Complete(c.stated, c.shown, c.withdrawn, c.held)
			if got != c.want || (err != nil) != c.complains {
				t.Errorf("Complete: %v, %v; want %v, complaint %v", got, err, c.want, c.complains)
			}
		})
	}
}
