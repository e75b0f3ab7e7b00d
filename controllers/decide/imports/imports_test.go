package imports

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// TestC8ExportedMetadata: the exported set is there, goes when the exports change, and leaves alone what users added;
// nobody exports over what is ours.
func TestC8ExportedMetadata(t *testing.T) {
	imp := &mcsv1beta1.ServiceImport{}
	imp.Labels = map[string]string{"user": "s"}
	m := &conflict.Merged{
		Labels: map[string]string{"team": "shop", "app.kubernetes.io/managed-by": "evil"},
		Annotations: map[string]string{
			"doc":                        "x",
			AnnotationDerived:            "evil",
			"clusterset-dns.io/exported": "user;",
		},
	}
	Metadata(imp, m, "derived-x", "m")
	if want := map[string]string{
		"user":                         "s",
		"team":                         "shop",
		"app.kubernetes.io/managed-by": "m",
	}; !maps.Equal(imp.Labels, want) {
		t.Errorf("labels %v, want %v", imp.Labels, want)
	}
	if want := map[string]string{
		"doc":              "x",
		AnnotationDerived:  "derived-x",
		AnnotationExported: "team;doc",
	}; !maps.Equal(imp.Annotations, want) {
		t.Errorf("annotations %v, want %v", imp.Annotations, want)
	}
	Metadata(imp, &conflict.Merged{Labels: map[string]string{"other": "1"}}, "derived-x", "m")
	if want := map[string]string{
		"user":                         "s",
		"other":                        "1",
		"app.kubernetes.io/managed-by": "m",
	}; !maps.Equal(imp.Labels, want) {
		t.Errorf("labels %v, want %v", imp.Labels, want)
	}
	if want := map[string]string{
		AnnotationDerived:  "derived-x",
		AnnotationExported: "other;",
	}; !maps.Equal(imp.Annotations, want) {
		t.Errorf("annotations %v, want %v", imp.Annotations, want)
	}
}

// TestAnImportStandsInForItself: what is made of it alone is the same import.
func TestAnImportStandsInForItself(t *testing.T) {
	oldest := clusterset.Export{
		Cluster:         "a",
		Created:         time.Unix(100, 0),
		Type:            mcsv1beta1.ClusterSetIP,
		SessionAffinity: corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))},
		},
		InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyLocal,
		TrafficDistribution:   "PreferClose",
		Preference:            hubv1alpha1.PreferLocal,
		Families: []corev1.IPFamily{
			"IPv6",
			"IPv4",
		},
		Labels:      map[string]string{"team": "shop"},
		Annotations: map[string]string{"doc": "x"},
		Ports:       []clusterset.Port{{Protocol: "TCP", Number: 80, AppProtocol: "http"}},
	}
	other := clusterset.Export{
		Cluster:         "c",
		Created:         time.Unix(200, 0),
		Type:            mcsv1beta1.Headless,
		Families:        oldest.Families,
		SessionAffinity: corev1.ServiceAffinityNone,
		Ports:           []clusterset.Port{{Name: "web", Protocol: "UDP", Number: 80}},
	}
	m, _ := conflict.Merge([]clusterset.Export{oldest, other})
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"user": "s"}}}
	Metadata(imp, &m, "derived-x", "m")
	imp.Spec = Spec(&m, m.Families, []string{"fd00::1", "10.0.0.1"})
	for _, others := range [][]clusterset.Export{nil, {other}} {
		e, ok := StandIn(imp, "a", nil)
		if !ok {
			t.Fatal("it says too little")
		}
		m, _ := conflict.Merge(append(others, e))
		is := imp.DeepCopy()
		Metadata(is, &m, "derived-x", "m")
		is.Spec = Spec(&m, m.Families, imp.Spec.IPs)
		if !equality.Semantic.DeepEqual(is, imp) {
			t.Errorf("with %d others:\n was %+v\n is  %+v", len(others), imp, is)
		}
	}
	if _, ok := StandIn(&mcsv1beta1.ServiceImport{}, "a", nil); ok {
		t.Error("one that never had a family stands in")
	}
}

// An unnamed port that a live export shares with the stand-in, or with a port of that name, is not added again with
// each pass.
func TestStandInDoesNotAddUnnamedPorts(t *testing.T) {
	port := func(name string, number int32) []clusterset.Port {
		return []clusterset.Port{{Name: name, Protocol: "UDP", Number: number}}
	}
	export := func(cluster string, ports []clusterset.Port) clusterset.Export {
		return clusterset.Export{
			Cluster: cluster, Type: mcsv1beta1.Headless, Ports: ports, Families: []corev1.IPFamily{corev1.IPv4Protocol},
		}
	}
	for _, ports := range [][]clusterset.Port{port("http", 90), port("", 80), port("udp-80", 81)} {
		f := export("f", ports)
		live := []clusterset.Export{export("l", port("", 80)), export("m", port("udp-80", 80))}
		m, _ := conflict.Merge([]clusterset.Export{f, live[0]})
		for pass := range 4 { // the second live export comes with the first pass
			imp := &mcsv1beta1.ServiceImport{}
			imp.Spec = Spec(&m, m.Families, nil)
			before := len(imp.Spec.Ports)
			e, _ := StandIn(imp, "f", live)
			m, _ = conflict.Merge(append([]clusterset.Export{e}, live...))
			if pass > 0 && len(m.Ports) != before {
				t.Errorf("%v: pass %d changes ports %+v to %+v", f.Ports, pass, imp.Spec.Ports, m.Ports)
			}
		}
	}
}

// TestC3StandInKeepsEveryPortName, of users and of merges, however many live exports have an unnamed port.
func TestC3StandInKeepsEveryPortName(t *testing.T) {
	export := func(cluster string, kind mcsv1beta1.ServiceImportType, names ...string) clusterset.Export {
		e := clusterset.Export{Cluster: cluster, Type: kind, Families: []corev1.IPFamily{corev1.IPv4Protocol}}
		for i, name := range names {
			e.Ports = append(e.Ports, clusterset.Port{Name: name, Protocol: "TCP", Number: int32(80 + i)})
		}
		return e
	}
	names := func(ports []clusterset.Port) (out []string) {
		for _, p := range ports {
			out = append(out, p.Name)
		}
		slices.Sort(out)
		return out
	}
	const headless, vip = mcsv1beta1.Headless, mcsv1beta1.ClusterSetIP
	for what, c := range map[string]struct {
		frozen, comes clusterset.Export // what comes joins the live ones once f is frozen
		live          []clusterset.Export
		want          []string
	}{
		"two unnamed ports": {frozen: export("f", headless, "tcp-80"),
			live: []clusterset.Export{export("l", headless, ""), export("m", headless, "")},
			want: []string{"tcp-80", "tcp-80-2"}},
		"a longer name that begins like a given one": {frozen: export("f", headless, "tcp-80-admin"),
			live: []clusterset.Export{export("l", headless, "")},
			want: []string{"tcp-80", "tcp-80-admin"}},
		"a number that no merge gives": {frozen: export("f", headless, "tcp-80-3", "http"),
			comes: export("l", headless, ""),
			want:  []string{"http", "tcp-80", "tcp-80-3"}},
		"one port, and an unnamed one comes": {frozen: export("f", headless, "tcp-80"),
			comes: export("l", headless, ""),
			want:  []string{"tcp-80", "tcp-80-2"}},
		"a VIP, and an unnamed port comes": {frozen: export("f", vip, "tcp-80"), comes: export("l", vip, ""),
			want: []string{"tcp-80"}},
	} {
		m, _ := conflict.Merge(append([]clusterset.Export{c.frozen}, c.live...))
		if c.comes.Cluster != "" {
			c.live = append(c.live, c.comes)
		}
		for pass := range 3 {
			imp := &mcsv1beta1.ServiceImport{}
			imp.Spec = Spec(&m, m.Families, nil)
			e, _ := StandIn(imp, "f", c.live)
			m, _ = conflict.Merge(append([]clusterset.Export{e}, c.live...))
			if got := names(m.Ports); !slices.Equal(got, c.want) {
				t.Errorf("%s: pass %d: ports %q, want %q", what, pass, got, c.want)
			}
		}
	}
}

// TestI4Ready names every reason.
func TestI4Ready(t *testing.T) {
	port := []clusterset.Port{{Name: "http", Protocol: "TCP", Number: 80}}
	v4 := []corev1.IPFamily{corev1.IPv4Protocol}
	ip := &conflict.Merged{Type: mcsv1beta1.ClusterSetIP, Ports: port, Families: v4}
	for _, c := range []struct {
		name     string
		m        *conflict.Merged
		families []corev1.IPFamily
		ips      []string
		failed   error
		want     mcsv1beta1.ServiceImportConditionReason
	}{
		{"ready", ip, v4, []string{"10.0.0.1"}, nil, mcsv1beta1.ServiceImportReasonReady},
		{"no VIP yet", ip, v4, nil, nil, mcsv1beta1.ServiceImportReasonPending},
		{"no VIP available", ip, v4, nil, errors.New("full"), mcsv1beta1.ServiceImportReasonPending},
		{"no family", ip, nil, nil, nil, mcsv1beta1.ServiceImportReasonIPFamilyNotSupported},
		{"headless", &conflict.Merged{Type: mcsv1beta1.Headless}, v4, nil, nil, mcsv1beta1.ServiceImportReasonReady},
		{"no port", &conflict.Merged{Type: mcsv1beta1.ClusterSetIP}, v4, nil, nil,
			mcsv1beta1.ServiceImportReasonPending},
	} {
		if got := Ready(c.m, c.families, c.ips, c.failed); got.Reason != string(c.want) || got.Message == "" {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// TestI11FillListsIPsBeforeItChangesThem: the policy clusterset-agent lets the agent change no others.
func TestI11FillListsIPsBeforeItChangesThem(t *testing.T) {
	for kind, want := range map[mcsv1beta1.ServiceImportType][]string{
		mcsv1beta1.Headless: nil, mcsv1beta1.ClusterSetIP: {"10.96.0.8"},
	} {
		imp := &mcsv1beta1.ServiceImport{}
		imp.Spec.Type, imp.Spec.IPs = kind, []string{"10.96.0.9"}
		for _, want := range [][]string{{"10.96.0.9"}, want, want} {
			Fill(imp, []string{"10.96.0.8"})
			if !slices.Equal(imp.Spec.IPs, want) || !Fillable(imp) {
				t.Errorf("%s: IPs %v, listed %q, want %v", kind, imp.Spec.IPs, imp.Annotations[AnnotationFilled], want)
			}
		}
	}
}
