package clusterset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Annotations of a ServiceExport. Its ServiceImports get the first two, too.
const (
	// AnnotationPreference lists, in order, which clusters carry the traffic (T2).
	AnnotationPreference = "clusterset-dns.io/preference"
	// AnnotationMinReady is how many ready endpoints, or what percentage of them, such clusters need.
	AnnotationMinReady = "clusterset-dns.io/preference-min-ready"
	// AnnotationExportTo lists the clusters that may import the Service (E11).
	AnnotationExportTo = "clusterset-dns.io/export-to"
)

// Tier selects clusters: "local" (the importing cluster), "any", "cluster=ID", "PROPERTY=VALUE" or "same:PROPERTY",
// where PROPERTY is the name of a ClusterProperty.
type Tier string

// Place is a cluster with its ClusterProperties.
type Place struct {
	Cluster    string
	Properties map[string]string
}

// Selects reports whether the tier selects a cluster, for traffic from own. A cluster without a property has none in
// common with another one.
func (t Tier) Selects(cluster, own Place) bool {
	switch {
	case t == "any":
		return true
	case t == "local":
		return cluster.Cluster == own.Cluster
	}
	if property, ok := strings.CutPrefix(string(t), "same:"); ok {
		value, has := own.Properties[property]
		theirs, have := cluster.Properties[property]
		return has && have && value == theirs
	}
	property, value, _ := strings.Cut(string(t), "=")
	if property == "cluster" {
		return cluster.Cluster == value
	}
	theirs, have := cluster.Properties[property]
	return have && value == theirs
}

// maxTiers is the maximum number of entries in a preference or an export-to list.
const maxTiers = 16

// maxListLength is the maximum length of such a list in octets: the bound in the record's CRD.
const maxListLength = 4096

// Bounds of the properties that a record states, so that no cluster makes all its records large.
const (
	maxProperties    = 16
	maxPropertyValue = 128 // octets
)

// isOwn reports whether a ClusterProperty is one of the clusterset or of this project, which no record states.
func isOwn(property string) bool {
	return property == PropertyID || property == PropertySet || strings.HasSuffix(property, ".clusterset-dns.io")
}

// aliases are the preferences that have a name of their own.
var aliases = map[hubv1alpha1.Preference]string{
	hubv1alpha1.PreferNone: "any", hubv1alpha1.PreferLocal: "local,any", hubv1alpha1.LocalOnly: "local",
}

// ParsePreference returns a preference in canonical form: without spaces, and by its name if it has one. "" means
// PreferNone.
func ParsePreference(text string) (hubv1alpha1.Preference, error) {
	text = strings.TrimSpace(text)
	if aliases[hubv1alpha1.Preference(text)] != "" {
		return hubv1alpha1.Preference(text), nil
	}
	if text == "" {
		return hubv1alpha1.PreferNone, nil
	}
	tiers, err := parseTiers(text)
	if err != nil {
		return "", err
	}
	if at := slices.Index(tiers, "any"); at >= 0 && at < len(tiers)-1 {
		return "", fmt.Errorf("nothing can follow %q, which selects every cluster", "any")
	}
	canonical := strings.Join(tiers, ",")
	for name, list := range aliases {
		if list == canonical {
			return name, nil
		}
	}
	return hubv1alpha1.Preference(canonical), nil
}

// parseOwnPreference returns what ParsePreference does, or an error if an entry goes by a ClusterProperty that no
// record states: it would select no cluster. Importers accept such a preference.
func parseOwnPreference(text string) (hubv1alpha1.Preference, error) {
	p, err := ParsePreference(text)
	for _, t := range Tiers(p) {
		property, _, _ := strings.Cut(strings.TrimPrefix(string(t), "same:"), "=")
		if isOwn(property) {
			return "", fmt.Errorf("%q: no record states ClusterProperty %s; use cluster=ID", t, property)
		}
	}
	return p, err
}

// Tiers returns the tiers of a preference that ParsePreference has returned. "" means PreferNone.
func Tiers(p hubv1alpha1.Preference) (out []Tier) {
	text := string(cmp.Or(p, hubv1alpha1.PreferNone))
	if list := aliases[hubv1alpha1.Preference(text)]; list != "" {
		text = list
	}
	for _, t := range strings.Split(text, ",") {
		out = append(out, Tier(t))
	}
	return out
}

// ParseExportTo returns a list of clusters in canonical form; "" means every cluster. It refuses "any", "local" and
// "same:": each entry names a cluster or the value of a property. After an error, do not use the returned "".
func ParseExportTo(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	for _, t := range strings.Split(text, ",") {
		if !strings.Contains(t, "=") {
			return "", fmt.Errorf("%q: want cluster=ID or PROPERTY=VALUE", strings.TrimSpace(t))
		}
	}
	tiers, err := parseTiers(text)
	return strings.Join(tiers, ","), err
}

// GoesTo reports whether a cluster may import the export: its own one, and those that export-to lists.
func (e *Export) GoesTo(importer Place) bool {
	if e.ExportTo == "" || e.Cluster == importer.Cluster {
		return true
	}
	return slices.ContainsFunc(strings.Split(e.ExportTo, ","), func(t string) bool {
		return Tier(t).Selects(importer, importer)
	})
}

func parseTiers(text string) (out []string, err error) {
	if len(text) > maxListLength {
		return nil, fmt.Errorf("%d octets are too many; the limit is %d", len(text), maxListLength)
	}
	parts := strings.Split(text, ",")
	if len(parts) > maxTiers {
		return nil, fmt.Errorf("%d entries are too many; the limit is %d", len(parts), maxTiers)
	}
	for _, part := range parts {
		t := strings.TrimSpace(part)
		if err := Tier(t).check(); err != nil {
			return nil, err
		}
		if slices.Contains(out, t) {
			return nil, fmt.Errorf("%q is listed twice", t)
		}
		out = append(out, t)
	}
	return out, nil
}

func (t Tier) check() error {
	if t == "any" || t == "local" {
		return nil
	}
	if property, ok := strings.CutPrefix(string(t), "same:"); ok {
		return checkProperty(property)
	}
	property, value, ok := strings.Cut(string(t), "=")
	switch {
	case !ok:
		return fmt.Errorf(
			"%q: want a list of local, any, cluster=ID, PROPERTY=VALUE and same:PROPERTY, or one of none, "+
				"prefer-local and local-only",
			t,
		)
	case property == "cluster":
		return CheckID(value)
	case value == "" || len(value) > maxPropertyValue:
		return fmt.Errorf("%q: want a value of 1 to %d octets", t, maxPropertyValue)
	}
	return checkProperty(property)
}

func checkProperty(name string) error {
	if p := validation.IsDNS1123Subdomain(name); len(p) > 0 {
		return fmt.Errorf("ClusterProperty %q: %s", name, p[0])
	}
	return nil
}

// MinReady is the value of AnnotationMinReady: a number, or a percentage of all endpoints. "" is 1.
type MinReady string

// ParseMinReady returns a MinReady in canonical form, or an error if text is neither a number nor a percentage.
func ParseMinReady(text string) (MinReady, error) {
	text = strings.TrimSpace(text)
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case text == "":
		return "", nil
	case err != nil || n < 1 || strconv.Itoa(n) != digits || percent && n > 100 || n > 100_000:
		return "", fmt.Errorf("%q: want a number of endpoints from 1, or a percentage such as 50%%", text)
	case text == "1":
		return "", nil
	}
	return MinReady(text), nil
}

func (m MinReady) Enough(ready, all int) bool {
	digits, percent := strings.CutSuffix(string(m), "%")
	n, _ := strconv.Atoi(digits)
	if percent {
		return ready > 0 && ready*100 >= n*all
	}
	return ready >= max(n, 1)
}

// Stated returns those ClusterProperties that a record states: none that isOwn, and none with a long value. If there
// are too many, it returns those in first, and the first others by name.
func Stated(properties map[string]string, first ...string) map[string]string {
	out := map[string]string{}
	for _, name := range slices.Concat(first, slices.Sorted(maps.Keys(properties))) {
		value, found := properties[name]
		if found && !isOwn(name) && len(value) <= maxPropertyValue && len(out) < maxProperties {
			out[name] = value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func checkProperties(properties map[string]string) error {
	if len(properties) > maxProperties {
		return fmt.Errorf("properties: %d are too many; the limit is %d", len(properties), maxProperties)
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) { // the same record always has the same error
		if err := checkProperty(name); err != nil {
			return err
		}
		if n := len(properties[name]); n > maxPropertyValue {
			return fmt.Errorf("ClusterProperty %q: %d octets are too many; the limit is %d",
				name, n, maxPropertyValue)
		}
	}
	return nil
}
