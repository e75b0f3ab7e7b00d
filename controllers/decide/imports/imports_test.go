package imports

import (
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

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
