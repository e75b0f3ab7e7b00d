// Package endpoints decides which EndpointSlices an importing cluster has for one ServiceImport (SPEC S1, S2, C4, T1,
// T2, F4; DESIGN §4, §7). The input is the slices of all source clusters, their states and the existing imported
// slices. The output is the desired slices and the changes to get there. It is pure and does not write anything.
package endpoints

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// Annotations of an imported slice, to rebuild its source while the hub does not show that.
const (
	AnnotationSource   = "clusterset-dns.io/source"   // Source.Name
	AnnotationRevision = "clusterset-dns.io/revision" // Revision
	AnnotationPorts    = "clusterset-dns.io/ports"    // Source.Ports, in JSON
	// AnnotationReadiness has the published conditions of endpoints made not ready here, by address, in JSON.
	AnnotationReadiness = "clusterset-dns.io/readiness"
)

// Source is one published group of endpoints of one source cluster.
type Source struct {
	Name      string // SourceName, or of this cluster's own slices NativeName
	ClusterID string
	Created   int64 // creation time of the record or page by the hub's clock, in Unix seconds; 0 for own slices
	Revision  int64 // of the record or page
	hubv1alpha1.EndpointGroup
	NoTraffic bool                        // keeps kube-proxy from using the slice (T2); DNS still answers with it
	Withheld  map[clusterset.PortKey]bool // ports that this source must not serve
	Published published                   // conditions of endpoints that this cluster made not ready
	// Native replaces the endpoints of the record if it is not nil: nodeName and targetRef of own endpoints stay
	// (DESIGN §4).
	Native []discoveryv1.Endpoint
}

// SourceName returns the name of a group in a record, or of the page with this number.
func SourceName(number int, cluster string) string { return strconv.Itoa(number) + "." + cluster }

// NativeName returns the name of the source that a slice of this cluster's own Service is.
func NativeName(slice types.UID, cluster string) string { return string(slice) + "." + cluster }

// OwnerOf returns the cluster ID in the name of a source, or "".
func OwnerOf(source string) string {
	_, cluster, _ := strings.Cut(source, ".")
	return cluster
}

// Import describes the ServiceImport that the slices belong to.
type Import struct {
	Namespace, Name string
	UID             types.UID
	Derived         string // name of the derived Service
	Manager         string // value of the managed-by label
	NoNodeHints     bool   // the API server is too old for hints for nodes: it drops them
	Merged          *conflict.Merged
}

// LabelStandby marks an imported slice whose endpoints carry no traffic, by preference (T2).
const LabelStandby = "clusterset-dns.io/standby"

// hidden are the labels that exclude a slice from what makes a Service's traffic: imported slices have them, and
// traffic slices do not. kube-proxy watches slices without IsHeadlessService, and up to 1.35 without the other label,
// too: for it, adding one deletes the slice. Cilium's replacement of kube-proxy, from 1.19.4 on, reads those with
// IsHeadlessService where its Gateway API or Ingress is on. So a slice gets both.
var hidden = map[string]string{
	corev1.IsHeadlessService:  "",
	derived.LabelServiceProxy: "none",
}

// Standby reports whether the endpoints of an imported slice carry no traffic of a VIP, by preference.
func Standby(imported *discoveryv1.EndpointSlice) bool { return imported.Labels[LabelStandby] != "" }

// readersLabels are the labels by which readers choose slices: a slice has no other ones of these than it should.
var readersLabels = []string{
	discoveryv1.LabelServiceName, mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster, LabelImport, LabelCluster,
	LabelStandby, corev1.IsHeadlessService, derived.LabelServiceProxy,
}

const sumLength = 20 // characters, in the name of an imported slice

// SliceName returns the name of the imported slice for a source. It is unique for each source and address type, which
// is immutable, and its length is constant.
func SliceName(derived, source string, family discoveryv1.AddressType) string {
	sum := sha256.Sum256([]byte(source + "/" + string(family)))
	text := base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	return derived + "-" + strings.ToLower(text)[:sumLength]
}

// ServiceOf returns the derived Service in the name of an imported slice or of a projection, or "" for other names.
func ServiceOf(slice string) string {
	service, _ := splitName(slice)
	return service
}

// Labels returns the labels that tie an imported slice to its import, its derived Service and its source cluster.
func Labels(name, derived, cluster, manager string) map[string]string {
	return map[string]string{
		mcsv1beta1.LabelServiceName:   name,
		mcsv1beta1.LabelSourceCluster: cluster,
		discoveryv1.LabelServiceName:  derived,
		discoveryv1.LabelManagedBy:    manager,
	}
}

// Desired returns the imported slice for src.
func Desired(src *Source, imp *Import) *discoveryv1.EndpointSlice {
	ports, _ := json.Marshal(src.Ports) // strings and numbers cannot fail
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: imp.Namespace,
			Name:      SliceName(imp.Derived, src.Name, src.AddressType),
			Labels:    Labels(imp.Name, imp.Derived, src.ClusterID, imp.Manager),
			Annotations: map[string]string{
				AnnotationSource:   src.Name,
				AnnotationRevision: Revision(src.Created, src.Revision),
				AnnotationPorts:    string(ports),
			},
			OwnerReferences: []metav1.OwnerReference{
				{
					APIVersion: mcsv1beta1.GroupVersion.String(),
					Kind:       mcsv1beta1.ServiceImportKindName,
					Name:       imp.Name,
					UID:        imp.UID,
					Controller: new(bool),
				},
			},
		},
		AddressType: src.AddressType,
		Ports:       portsOf(src, imp),
	}
	if src.LastChangeTriggerTime != "" {
		slice.Annotations[corev1.EndpointsLastChangeTriggerTime] = src.LastChangeTriggerTime
	}
	if readiness := src.readiness(); readiness != "" {
		slice.Annotations[AnnotationReadiness] = readiness
	}
	maps.Copy(slice.Labels, hidden)
	if src.NoTraffic && imp.Merged.Type != mcsv1beta1.Headless {
		slice.Labels[LabelStandby] = "true"
	}
	if slice.Endpoints = slices.Clone(src.Native); slice.Endpoints == nil {
		slice.Endpoints = endpointsOf(src.Endpoints)
	}
	for i := range slice.Endpoints {
		slice.Endpoints[i].Hints = imp.hints(&slice.Endpoints[i])
		slice.Endpoints[i].DeprecatedTopology = nil
		if imp.Merged.Type != mcsv1beta1.Headless {
			// Istio's ambient mode adds each Pod that a slice refers to to the derived Service, at that Service's
			// targetPort.
			slice.Endpoints[i].TargetRef = nil
		}
	}
	return slice
}

// portsOf returns the ports of a source without those that lost a conflict (C4) or are withheld, under the import's
// names. The traffic slice alone has the derived Service's: Linkerd and Istio's ambient mode find endpoints by them in
// every slice with kubernetes.io/service-name, also in one of a source that is on standby.
func portsOf(src *Source, imp *Import) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for i := range src.Ports {
		p := &src.Ports[i]
		name, ok := imp.Merged.Names[src.ClusterID][keyOf(p)]
		named := func(o discoveryv1.EndpointPort) bool { return *o.Name == name }
		if !ok || mergedPort(imp, name) == nil || src.Withheld[keyOf(p)] || slices.ContainsFunc(out, named) {
			continue
		}
		out = append(
			out,
			discoveryv1.EndpointPort{Name: &name, Protocol: &p.Protocol, Port: p.Target, AppProtocol: p.AppProtocol},
		)
	}
	return out
}

func mergedPort(imp *Import, name string) *clusterset.Port {
	at := slices.IndexFunc(imp.Merged.Ports, func(m clusterset.Port) bool { return m.Name == name })
	if at < 0 {
		return nil
	}
	return &imp.Merged.Ports[at]
}

func keyOf(p *hubv1alpha1.EndpointPort) clusterset.PortKey {
	return clusterset.PortKey{Protocol: p.Protocol, Number: p.Port}
}

func endpointsOf(in []hubv1alpha1.Endpoint) []discoveryv1.Endpoint {
	out := make([]discoveryv1.Endpoint, 0, len(in))
	for i := range in {
		e := &in[i]
		isReady := ready(e.Ready)
		ep := discoveryv1.Endpoint{
			Addresses: []string{e.Address},
			Conditions: discoveryv1.EndpointConditions{
				Ready:       &isReady,
				Serving:     new(ptr.Deref(e.Serving, isReady)),
				Terminating: new(ptr.Deref(e.Terminating, false)),
			},
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

// elsewhere is the hint of an endpoint whose zone or node no client here can be in. kube-proxy uses hints only if all
// ready endpoints have them, so one member without zones would disable them for all others.
const elsewhere = "elsewhere.clusterset-dns.io"

// hints returns hints for the endpoint's zone and node if traffic should stay near. Only own endpoints have a node. No
// kube-proxy reads those of a Headless import, so they have none for nodes, which an older API server would drop.
func (imp *Import) hints(e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	distribution := imp.Merged.TrafficDistribution
	if distribution == "" {
		return nil
	}
	zone := ptr.Deref(e.Zone, "")
	if zone == "" || len(validation.IsValidLabelValue(zone)) > 0 {
		zone = elsewhere
	}
	out := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	nodes := imp.Merged.Type != mcsv1beta1.Headless && !imp.NoNodeHints
	if distribution == corev1.ServiceTrafficDistributionPreferSameNode && nodes {
		out.ForNodes = []discoveryv1.ForNode{{Name: cmp.Or(ptr.Deref(e.NodeName, ""), elsewhere)}}
	}
	return out
}

// NewerThan returns whether src is newer than a record or page with this creation time and revision, as a restored hub
// shows again: neither is above that of src, and one is below. So what was created later than src is never older,
// whatever its revision: the owner's clock, which revisions follow, may have been set back.
func (src *Source) NewerThan(created, revision int64) bool {
	return created <= src.Created && revision <= src.Revision && (created < src.Created || revision < src.Revision)
}

// Revision returns the value of AnnotationRevision: the creation on the hub, in Unix seconds, and the revision.
func Revision(created, revision int64) string {
	return strconv.FormatInt(created, 10) + " " + strconv.FormatInt(revision, 10)
}

// Restore rebuilds the source of an imported slice from the slice alone. It fails if the slice was not made by
// Desired or was edited.
func Restore(slice *discoveryv1.EndpointSlice) (Source, error) {
	src := Source{Name: slice.Annotations[AnnotationSource], Native: asPublished(slice)}
	src.ClusterID, src.AddressType = slice.Labels[mcsv1beta1.LabelSourceCluster], slice.AddressType
	if src.Native == nil {
		src.Native = []discoveryv1.Endpoint{}
	}
	if src.Name == "" {
		return src, fmt.Errorf(
			"imported EndpointSlice %s/%s has no annotation %s", slice.Namespace, slice.Name, AnnotationSource,
		)
	}
	if _, err := fmt.Sscanf(slice.Annotations[AnnotationRevision], "%d %d", &src.Created, &src.Revision); err != nil {
		return src, fmt.Errorf(
			"imported EndpointSlice %s/%s: annotation %s: %w", slice.Namespace, slice.Name, AnnotationRevision, err,
		)
	}
	if err := json.Unmarshal([]byte(slice.Annotations[AnnotationPorts]), &src.Ports); err != nil {
		return src, fmt.Errorf(
			"imported EndpointSlice %s/%s: annotation %s: %w", slice.Namespace, slice.Name, AnnotationPorts, err,
		)
	}
	return src, nil
}
