package resolution

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// Try calls merge with a copy of the exports in many orders: beginning with each of them, and backwards. It says
// all that is wrong with the
// first wrong result or was done to the input (what an informer hands out is read-only).
func Try(
	exports []clusterset.Export,
	merge func([]clusterset.Export) (conflict.Merged, []conflict.Conflict),
) error {
	backwards := slices.Clone(exports)
	slices.Reverse(backwards)
	if err := try(backwards, merge); err != nil {
		return err
	}
	for i := range max(1, len(exports)) {
		if err := try(slices.Concat(exports[i:], exports[:i]), merge); err != nil {
			return err
		}
	}
	return nil
}

func try(
	exports []clusterset.Export,
	merge func([]clusterset.Export) (conflict.Merged, []conflict.Conflict),
) error {
	given := copyAll(exports)
	before := copyAll(given)
	m, conflicts := merge(given)
	return errors.Join(unchanged(before, given), Check(before, m, conflicts))
}

func copyAll(exports []clusterset.Export) []clusterset.Export {
	all := make([]clusterset.Export, 0, len(exports))
	for _, export := range exports {
		all = append(all, clone(export))
	}
	return all
}

// unchanged says which exports are not what they were, including the spare capacity of their lists: others may
// append there.
func unchanged(before, after []clusterset.Export) error {
	if len(before) != len(after) {
		return fmt.Errorf("input changed: %d exports became %d", len(before), len(after))
	}
	var problems []error
	for i := range before {
		was, is := before[i], after[i]
		same := reflect.DeepEqual(was, is) &&
			slices.Equal(was.Ports[:cap(was.Ports)], is.Ports[:cap(is.Ports)]) &&
			slices.Equal(was.Families[:cap(was.Families)], is.Families[:cap(is.Families)])
		if !same {
			problems = append(
				problems,
				fmt.Errorf(
					"input changed at %d:\n  was %+v\n  is  %+v\n  (or the spare capacity of a list)",
					i,
					was,
					is,
				),
			)
		}
	}
	return errors.Join(problems...)
}

// Check compares a result with the model's and with what must hold of any, and says all that is wrong with it, and
// for which exports.
// Nil and empty are the same.
func Check(exports []clusterset.Export, m conflict.Merged, conflicts []conflict.Conflict) error {
	want, disagree := resolve(exports)
	problem := errors.Join(
		differ("clusters", want.Clusters, m.Clusters),
		differ("C2: type", want.Type, m.Type),
		differ("C3: ports", want.Ports, m.Ports),
		differ("C4: names", want.Names, m.Names),
		differ("C5: sessionAffinity", want.SessionAffinity, m.SessionAffinity),
		differ("C5: sessionAffinityConfig", want.SessionAffinityConfig, m.SessionAffinityConfig),
		differ("C6: internalTrafficPolicy", want.InternalTrafficPolicy, m.InternalTrafficPolicy),
		differ("C6: trafficDistribution", want.TrafficDistribution, m.TrafficDistribution),
		differ("T2: preference", want.Preference, m.Preference),
		differ("T2: min-ready", want.MinReady, m.MinReady),
		differ("C7: families", want.Families, m.Families),
		differ("C8: labels", want.Labels, m.Labels),
		differ("C8: annotations", want.Annotations, m.Annotations),
		invariants(exports, m),
		checkConflicts(exports, disagree, conflicts),
	)
	if problem == nil {
		return nil
	}
	var input strings.Builder
	for _, export := range precedence(exports) {
		fmt.Fprintf(&input, "\n  %+v", export)
	}
	return fmt.Errorf("%w\nexports, oldest first:%s", problem, input.String())
}

func differ[T any](what string, want, got T) error {
	if equality.Semantic.DeepEqual(want, got) {
		return nil
	}
	return fmt.Errorf("%s: want %+v, got %+v", what, want, got)
}

var disagreeing = regexp.MustCompile(`\b([0-9]+/[0-9]+) clusters disagree\b`)

// checkConflicts demands every reason that holds, once and in the table's order, and of every message whose value
// won and how many
// clusters disagree (K1645's example: … in "cluster-1". 2/5 clusters disagree).
func checkConflicts(exports []clusterset.Export, disagree map[reason]int, conflicts []conflict.Conflict) error {
	var want, got []reason
	for _, row := range table {
		if disagree[row.reason] > 0 {
			want = append(want, row.reason)
		}
	}
	var problems []error
	for _, c := range conflicts {
		got = append(got, c.Reason)
		if winner := strconv.Quote(precedence(exports)[0].Cluster); !strings.Contains(c.Message, winner) {
			problems = append(
				problems,
				fmt.Errorf("%s: message does not name the winner %s: %q", c.Reason, winner, c.Message),
			)
		}
		ratio := fmt.Sprintf("%d/%d", disagree[c.Reason], len(exports))
		if found := disagreeing.FindStringSubmatch(c.Message); found == nil || found[1] != ratio {
			problems = append(
				problems,
				fmt.Errorf("%s: message does not say that %s clusters disagree: %q", c.Reason, ratio, c.Message),
			)
		}
	}
	return errors.Join(append([]error{differ("C1: reasons", want, got)}, problems...)...)
}
