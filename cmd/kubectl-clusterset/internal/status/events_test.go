package status_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
)

func warned(reason, kind, namespace, name, note string, ago time.Duration) eventsv1.Event {
	return eventsv1.Event{Reason: reason, Note: note, EventTime: metav1.NewMicroTime(now.Add(-ago)),
		Regarding: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name}}
}

// TestV7WhatTheAgentWarnedOfIsShown: the last of each reason and object, the newest first, in the report and for a
// person; no problem, since it may be over.
func TestV7WhatTheAgentWarnedOfIsShown(t *testing.T) {
	system := func(reason, note string, ago time.Duration) eventsv1.Event {
		return warned(reason, "Namespace", "clusterset-system", "clusterset-system", note, ago)
	}
	again := system("VIPRangeRefused", "a policy says no", 50*time.Minute)
	again.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(now.Add(-5 * time.Minute))}
	for name, c := range map[string]struct {
		events []eventsv1.Event
		want   []string
	}{
		"nothing": {},
		"unsupported": {[]eventsv1.Event{system("VIPModeUnsupported", "use shared", 12*time.Minute)},
			[]string{"12m ago VIPModeUnsupported Namespace clusterset-system use shared"}},
		"ranges are not told": {[]eventsv1.Event{system("RangesNotTold", "left out", time.Minute)},
			[]string{"60s ago RangesNotTold Namespace clusterset-system left out"}},
		"the newest first, one repeated": {
			[]eventsv1.Event{system("VIPModeUnsupported", "use shared", 12*time.Minute),
				warned("VIPLost", "ServiceCIDR", "", "vips", "shop/web has it", 20*time.Minute), again},
			[]string{
				"5m ago VIPRangeRefused Namespace clusterset-system a policy says no",
				"12m ago VIPModeUnsupported Namespace clusterset-system use shared",
				"20m ago VIPLost ServiceCIDR vips shop/web has it",
			},
		},
		"the last of a reason and object": {
			[]eventsv1.Event{
				warned("VIPLost", "Service", "shop", "a", "old", 30*time.Minute),
				warned("VIPLost", "Service", "shop", "a", "new", 10*time.Minute),
				warned("VIPLost", "Service", "shop", "a", "middle", 20*time.Minute),
				warned("VIPLost", "Service", "mall", "a", "other", 10*time.Minute),
			},
			[]string{"10m ago VIPLost Service mall/a other", "10m ago VIPLost Service shop/a new"},
		},
		"of one cluster both families": {
			[]eventsv1.Event{warned("VIPRangeOverflow", "ServiceCIDR", "", "vips", "shop/web has it", 20*time.Minute),
				warned("VIPRangeOverflow", "ServiceCIDR", "", "vips", "shop/api has it", 21*time.Minute)},
			[]string{"20m ago VIPRangeOverflow ServiceCIDR vips shop/web has it",
				"21m ago VIPRangeOverflow ServiceCIDR vips shop/api has it"},
		},
		"what a terminal would obey": {[]eventsv1.Event{warned("VIPLost", "Service", "shop", "a",
			"\x1b[2J\nx", 3*time.Minute)}, []string{`3m ago VIPLost Service shop/a \x1b[2J\nx`}},
		"the import says it": {[]eventsv1.Event{warned("VIPRangeFull", "ServiceImport", "shop", "web",
			"full", time.Minute)}, nil},
		"neither of VIPs nor of ranges": {[]eventsv1.Event{warned("RecordRefused", "ServiceImport", "shop", "web",
			"nonsense", time.Minute)}, nil},
	} {
		f := sound()
		f.Member.Events = c.events
		f.Hub.Now = now.Add(time.Hour) // ages are by the clock of the cluster that the Events are in
		r := status.Examine(f)
		r.Findings = nil // the hub's clock makes its Leases old
		var out strings.Builder
		status.Print(&out, &r, false, f.Hub.Now)
		_, text, _ := strings.Cut(out.String(), "\nWARNING EVENTS ABOUT VIPS HERE\n")
		text, _, _ = strings.Cut(text, "\n\n")
		var got []string
		for _, line := range strings.Split(text, "\n") {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		if strings.Join(got[1:], "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: got\n%s\nwant %q", name, text, c.want)
		}
		headline, _, _ := strings.Cut(out.String(), "\n")
		if strings.Contains(headline, "Event") != (len(c.want) > 0) || len(c.want) > 0 &&
			!strings.HasSuffix(headline, fmt.Sprintf("0 warnings, %d Warning Event%s", len(c.want),
				"s"[:min(1, len(c.want)-1)])) {
			t.Errorf("%s: %s", name, headline)
		}
	}
}

// TestV7WarningsThatCannotBeReadAreTold, and nothing else is kept back for it.
func TestV7WarningsThatCannotBeReadAreTold(t *testing.T) {
	f := sound()
	f.Member.EventsUnread = errors.New("this cluster: events is forbidden")
	r := status.Examine(f)
	var out strings.Builder
	status.Print(&out, &r, false, now)
	if !strings.Contains(out.String(), "reading the agent's Events failed: this cluster: events is forbidden") ||
		len(r.Findings) > 0 || r.Here.Unread == "" {
		t.Errorf("%+v\n%s", r.Here, out.String())
	}
}

// TestV7EventsAreNoFindings, and those that a person is shown are few.
func TestV7EventsAreNoFindings(t *testing.T) {
	f := sound()
	for i := range 13 {
		f.Member.Events = append(f.Member.Events, warned("VIPLost", "Service", "shop", fmt.Sprint("web-", i),
			"another has it", time.Duration(i+2)*time.Minute))
	}
	r := status.Examine(f)
	if len(r.Findings) > 0 {
		t.Errorf("%+v", r.Findings)
	}
	for wide, want := range map[bool]int{false: 10, true: 13} {
		var out strings.Builder
		status.Print(&out, &r, wide, now)
		if got := strings.Count(out.String(), "VIPLost"); got != want ||
			strings.Contains(out.String(), "and 3 more: -o wide") == wide {
			t.Errorf("wide %v: %d\n%s", wide, got, out.String())
		}
	}
	var told struct {
		Here struct {
			Warnings []map[string]string `json:"warnings"`
		} `json:"here"`
	}
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if err != nil || len(told.Here.Warnings) != 13 ||
		fmt.Sprint(told.Here.Warnings[0]) != "map[about:Service shop/web-0 note:another has it reason:VIPLost "+
			"seen:2026-01-02T03:02:05Z]" {
		t.Errorf("%v: %s", err, text)
	}
}
