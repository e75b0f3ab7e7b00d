// Package endpoints decides how the endpoints of one source slice appear in an importing cluster (SPEC S1, S2, C4; DESIGN §4, §7). Pure:
// the source as it was published or seen, the import, and the derived Service's ports in; the EndpointSlice that ought to be out.
package endpoints

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// What an imported slice remembers of its source, so that it can be rebuilt while the hub shows none.
const (
	AnnotationRecord   = "clusterset-dns.io/record"   // the EndpointRecord's name
	AnnotationRevision = "clusterset-dns.io/revision" // when it was created on the hub, in seconds since 1970, and its revision
	AnnotationPorts    = "clusterset-dns.io/ports"    // its ports, by the source's own names
	// AnnotationReadiness holds what the source says of endpoints that are not ready by this cluster's verdict: ready and serving, by address.
	AnnotationReadiness = "clusterset-dns.io/readiness"
)

// Source is one slice of one exporting cluster.
type Source struct {
	Record string // EndpointRecordName
	// Created is when the record was created, by the hub's clock, in seconds since 1970; 0 for this cluster's own.
	Created int64
	hubv1alpha1.EndpointRecordSpec
	// Silent sources carry no traffic of the VIP (T2). DNS answers with them all the same.
	Silent bool
	// Mute are its ports, by its own names, that are not to be served by it: what it says of them stays.
	Mute map[string]bool
	// Said is what the source says of those of its endpoints that were made not ready here, by address.
	Said map[string]said
	// Native holds the endpoints as they are where the source is this cluster's own: nodeName and targetRef stay (DESIGN §4).
	Native []discoveryv1.Endpoint
}

// Import is what slices need to know of the ServiceImport they belong to.
type Import struct {
	Namespace, Name string
	UID             types.UID
	Derived         string // name of the derived Service
	Manager         string // value of the managed-by label
	Merged          *conflict.Merged
}

// headless is the label that kube-proxy excludes from its watch of EndpointSlices.
const headless = corev1.IsHeadlessService

// SliceName is the imported slice's: unambiguous for every source and address type, which a slice cannot change, and of a length that
// does not depend on them.
func SliceName(derived, record string, family discoveryv1.AddressType) string {
	sum := sha256.Sum256([]byte(record + "/" + string(family)))
	return derived + "-" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))[:20]
}

// Labels are what says of which import, derived Service and cluster an imported slice is.
func Labels(name, derived, cluster, manager string) map[string]string {
	return map[string]string{
		mcsv1beta1.LabelServiceName:   name,
		mcsv1beta1.LabelSourceCluster: cluster,
		discoveryv1.LabelServiceName:  derived,
		discoveryv1.LabelManagedBy:    manager,
	}
}

// Desired is the imported slice for src.
func Desired(src *Source, imp *Import) *discoveryv1.EndpointSlice {
	ports, _ := json.Marshal(src.Ports) // cannot fail: strings and numbers
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: imp.Namespace,
			Name:      SliceName(imp.Derived, src.Record, src.AddressType),
			Labels:    Labels(imp.Name, imp.Derived, src.ClusterID, imp.Manager),
			Annotations: map[string]string{
				AnnotationRecord:   src.Record,
				AnnotationRevision: Revision(src.Created, src.Revision),
				AnnotationPorts:    string(ports),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName, Name: imp.Name, UID: imp.UID,
				Controller: new(bool),
			}},
		},
		AddressType: src.AddressType,
		Ports:       portsOf(src, imp),
	}
	if readiness := src.readiness(); readiness != "" {
		slice.Annotations[AnnotationReadiness] = readiness
	}
	if imp.Merged.Type == mcsv1beta1.Headless || src.Silent {
		// kube-proxy's watch leaves out what bears this label: a headless import has no VIP, whatever its derived Service still holds.
		slice.Labels[headless] = ""
	}
	if slice.Endpoints = slices.Clone(src.Native); slice.Endpoints == nil {
		slice.Endpoints = endpointsOf(src.Endpoints)
	}
	for i := range slice.Endpoints {
		slice.Endpoints[i].Hints = hints(imp.Merged.TrafficDistribution, slice.Endpoints[i].Zone)
		slice.Endpoints[i].DeprecatedTopology = nil
	}
	return slice
}

// portsOf are the source's ports; one that lost to another cluster's is left out (C4). Each stands there under the derived Service's name
// for it, by which kube-proxy finds it, and under the import's, by which everybody else does. A headless import has no use for the
// former.
func portsOf(src *Source, imp *Import) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	add := func(name string, p *hubv1alpha1.EndpointPort) {
		if slices.ContainsFunc(out, func(o discoveryv1.EndpointPort) bool { return *o.Name == name }) {
			return
		}
		out = append(out, discoveryv1.EndpointPort{Name: &name, Protocol: &p.Protocol, Port: p.Port, AppProtocol: p.AppProtocol})
	}
	names := imp.Merged.Names[src.ClusterID]
	if len(src.Mute) > 0 {
		names = maps.Clone(names)
		maps.DeleteFunc(names, func(port, _ string) bool { return src.Mute[port] })
	}
	if imp.Merged.Type != mcsv1beta1.Headless {
		for i := range src.Ports {
			name, ok := names[src.Ports[i].Name]
			at := slices.IndexFunc(imp.Merged.Ports, func(m clusterset.Port) bool { return m.Name == name })
			if ok && at >= 0 {
				add(derived.PortName(imp.Merged.Ports[at].Protocol, imp.Merged.Ports[at].Number), &src.Ports[i])
			}
		}
	}
	for i := range src.Ports {
		if name, ok := names[src.Ports[i].Name]; ok {
			add(name, &src.Ports[i])
		}
	}
	return out
}

func endpointsOf(in []hubv1alpha1.Endpoint) []discoveryv1.Endpoint {
	out := make([]discoveryv1.Endpoint, 0, len(in))
	for i := range in {
		e := &in[i]
		ep := discoveryv1.Endpoint{
			Addresses:  []string{e.Address},
			Conditions: discoveryv1.EndpointConditions{Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
		}
		if e.Hostname != "" {
			ep.Hostname = &e.Hostname
		}
		if e.Zone != "" {
			ep.Zone = &e.Zone
		}
		out = append(out, ep)
	}
	return out
}

// hints puts an endpoint into its zone where traffic is to be kept near. kube-proxy goes by hints only where all ready endpoints carry
// them, so one endpoint without a zone turns them off, as in a single cluster.
func hints(distribution string, zone *string) *discoveryv1.EndpointHints {
	if distribution == "" || zone == nil {
		return nil
	}
	return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *zone}}}
}

// Older tells whether a record says less than src (Word.Older).
func (src *Source) Older(created, revision int64) bool {
	return Word{Created: src.Created, Revision: src.Revision}.Older(created, revision)
}

// Revision is AnnotationRevision's value.
func Revision(created, revision int64) string {
	return strconv.FormatInt(created, 10) + " " + strconv.FormatInt(revision, 10)
}

// Remembered rebuilds the source of an imported slice from the slice alone. It fails where the slice was not made by Desired.
func Remembered(slice *discoveryv1.EndpointSlice) (Source, error) {
	src := Source{Record: slice.Annotations[AnnotationRecord], Native: asSaid(slice)}
	src.ClusterID = slice.Labels[mcsv1beta1.LabelSourceCluster]
	src.ServiceNamespace, src.ServiceName = slice.Namespace, slice.Labels[mcsv1beta1.LabelServiceName]
	src.AddressType = slice.AddressType
	if src.Native == nil {
		src.Native = []discoveryv1.Endpoint{}
	}
	if src.Record == "" {
		return src, fmt.Errorf("imported EndpointSlice %s/%s lost its annotation %s", slice.Namespace, slice.Name, AnnotationRecord)
	}
	if _, err := fmt.Sscanf(slice.Annotations[AnnotationRevision], "%d %d", &src.Created, &src.Revision); err != nil {
		return src, fmt.Errorf("imported EndpointSlice %s/%s: annotation %s: %w", slice.Namespace, slice.Name, AnnotationRevision, err)
	}
	if err := json.Unmarshal([]byte(slice.Annotations[AnnotationPorts]), &src.Ports); err != nil {
		return src, fmt.Errorf("imported EndpointSlice %s/%s: annotation %s: %w", slice.Namespace, slice.Name, AnnotationPorts, err)
	}
	return src, nil
}
