package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// The users that policies know.
const (
	Agent               = "agent"   // of a member, in its own cluster
	Member              = "member:" // followed by the cluster id, on the hub
	NamespaceController = "namespace-controller"
)

// MembersWriteTheirOwn is deploy/hub's policies: a member writes records and the Lease of its own cluster, but no
// record's status, and of its ClusterProfile only that.
func MembersWriteTheirOwn(w *Write) error {
	id, member := strings.CutPrefix(w.User, Member)
	if !member {
		return nil
	}
	o := w.New
	if o == nil {
		o = w.Old
	}
	owner := ""
	switch o := o.(type) {
	case *hubv1alpha1.ServiceExportRecord:
		owner = o.Spec.ClusterID
	case *hubv1alpha1.EndpointPage:
		owner = o.Spec.ClusterID
	default:
		if w.Key.Kind == Lease || w.Key.Kind == ClusterProfile && w.Status {
			owner = w.Key.Name
		}
	}
	switch {
	case owner != id:
		return apierrors.NewForbidden(
			w.Key.resource(),
			w.Key.Name,
			fmt.Errorf("cluster %s does not write what is cluster %q's", id, owner),
		)
	case w.Status && w.Key.Kind != ClusterProfile:
		return apierrors.NewForbidden(
			w.Key.resource(),
			w.Key.Name,
			fmt.Errorf("members do not write the status of records on the hub"),
		)
	case becomesOlder(w):
		return apierrors.NewForbidden(
			w.Key.resource(),
			w.Key.Name,
			fmt.Errorf("a record neither returns from its withdrawal nor gets an earlier exportedAt"),
		)
	case w.New != nil && len(w.New.GetFinalizers())+len(w.New.GetOwnerReferences()) > 0:
		return apierrors.NewForbidden(
			w.Key.resource(),
			w.Key.Name,
			fmt.Errorf("cluster %s may not change finalizers or ownerReferences", id),
		)
	}
	return nil
}

// becomesOlder tells of a record that is to be another export, or an older one, than it was created for (C1).
func becomesOlder(w *Write) bool {
	was, before := w.Old.(*hubv1alpha1.ServiceExportRecord)
	is, after := w.New.(*hubv1alpha1.ServiceExportRecord)
	if !before || !after {
		return false
	}
	return was.Spec.Withdrawn && !is.Spec.Withdrawn || is.Spec.ExportedAt.Before(was.Spec.ExportedAt)
}

// DerivedServicesStay is deploy/member's policy: only the agent, or the end of its namespace, deletes a derived
// Service. Edits, which that policy refuses as well, pass here: where it is not applied they are put right (I9).
func DerivedServicesStay(manager string) func(*Write) error {
	return func(w *Write) error {
		if w.New != nil || w.Key.Kind != Service || !strings.HasPrefix(w.Key.Name, "derived-") ||
			w.Old.GetLabels()["app.kubernetes.io/managed-by"] != manager {
			return nil
		}
		if w.User == Agent || w.User == NamespaceController || w.User == "admin" {
			return nil
		}
		return apierrors.NewForbidden(w.Key.resource(), w.Key.Name, fmt.Errorf("it holds the VIP of an import"))
	}
}

func endpointSlice(s *Server, oldObject, object client.Object) error {
	slice, k := object.(*discoveryv1.EndpointSlice), KeyOf(object)
	if old, ok := oldObject.(*discoveryv1.EndpointSlice); ok && old.AddressType != slice.AddressType {
		return s.invalid(k, field.Invalid(field.NewPath("addressType"), slice.AddressType, "field is immutable"))
	}
	if len(slice.Endpoints) > 1000 || len(validation.IsDNS1123Subdomain(slice.Name)) > 0 {
		return s.invalid(
			k,
			field.Invalid(
				field.NewPath("endpoints"),
				len(slice.Endpoints),
				"at most 1000, and a name that is a DNS subdomain",
			),
		)
	}
	var names []string
	for i := range slice.Ports {
		p, name, protocol := &slice.Ports[i], "", corev1.ProtocolTCP
		if p.Name == nil {
			p.Name = &name
		}
		if p.Protocol == nil {
			p.Protocol = &protocol
		}
		if slices.Contains(names, *p.Name) {
			return s.invalid(k, field.Duplicate(field.NewPath("ports").Index(i).Child("name"), *p.Name))
		}
		names = append(names, *p.Name)
	}
	return nil
}

func serviceImport(s *Server, object client.Object) error {
	imp := object.(*mcsv1beta1.ServiceImport)
	if t := imp.Spec.Type; t != mcsv1beta1.ClusterSetIP && t != mcsv1beta1.Headless {
		return s.invalid(
			KeyOf(imp),
			field.NotSupported(field.NewPath("spec", "type"), t, []string{"ClusterSetIP", "Headless"}),
		)
	}
	if imp.Spec.Ports == nil || len(imp.Spec.IPs) > 2 || len(imp.Spec.IPFamilies) > 2 {
		return s.invalid(
			KeyOf(imp),
			field.Invalid(field.NewPath("spec"), imp.Spec, "ports must be there, ips and ipFamilies at most two"),
		)
	}
	return nil
}

var (
	clusterID = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`)
	dnsLabel  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// origin is the part of the records' schema that says whose they are.
func origin(s *Server, k Key, o, old *hubv1alpha1.Origin) error {
	path := field.NewPath("spec")
	for _, f := range []struct {
		name, value string
		form        *regexp.Regexp
	}{{"clusterID", o.ClusterID, clusterID}, {"serviceNamespace", o.ServiceNamespace, dnsLabel}, {"serviceName", o.ServiceName, dnsLabel}} {
		if len(f.value) > 63 || !f.form.MatchString(f.value) {
			return s.invalid(k, field.Invalid(path.Child(f.name), f.value, "must match "+f.form.String()))
		}
	}
	if o.Revision < 1 || o.Revision > 1<<53 {
		return s.invalid(
			k,
			field.Invalid(
				path.Child("revision"),
				o.Revision,
				"should be greater than or equal to 1, and less than or equal to 9007199254740992",
			),
		)
	}
	if old != nil &&
		(o.ClusterID != old.ClusterID || o.ServiceNamespace != old.ServiceNamespace || o.ServiceName != old.ServiceName) {
		return s.invalid(
			k,
			field.Invalid(path, o.ClusterID, "clusterID, serviceNamespace and serviceName are immutable"),
		)
	}
	return nil
}

func exportRecord(s *Server, oldObject, object client.Object) error {
	rec, k := object.(*hubv1alpha1.ServiceExportRecord), KeyOf(object)
	var was *hubv1alpha1.Origin
	if old, ok := oldObject.(*hubv1alpha1.ServiceExportRecord); ok {
		was = &old.Spec.Origin
	}
	spec := &rec.Spec
	if err := origin(s, k, &spec.Origin, was); err != nil {
		return err
	}
	path := field.NewPath("spec")
	if rec.Name != spec.ServiceName+"."+spec.ServiceNamespace+"."+spec.ClusterID {
		return s.invalid(
			k,
			field.Invalid(
				field.NewPath(""),
				rec.Name,
				"metadata.name must be <serviceName>.<serviceNamespace>.<clusterID>",
			),
		)
	}
	if !spec.Withdrawn && (spec.Type == "" || spec.ExportedAt == nil || len(spec.IPFamilies) == 0) {
		return s.invalid(
			k,
			field.Invalid(
				path,
				spec.Type,
				"type, exportedAt and ipFamilies are required unless the record is withdrawn",
			),
		)
	}
	if t := spec.Type; t != "" && t != mcsv1beta1.ClusterSetIP && t != mcsv1beta1.Headless {
		return s.invalid(k, field.NotSupported(path.Child("type"), t, []string{"ClusterSetIP", "Headless"}))
	}
	for _, p := range spec.Ports {
		if err := recordPort(s, k, p.Protocol, &p.Port); err != nil {
			return err
		}
	}
	for i := range spec.Endpoints {
		if err := endpointGroup(s, k, &spec.Endpoints[i]); err != nil {
			return err
		}
	}
	if len(spec.Endpoints) > 8 {
		return s.invalid(k, field.TooMany(path.Child("endpoints"), len(spec.Endpoints), 8))
	}
	return nil
}

func endpointPage(s *Server, oldObject, object client.Object) error {
	page, k := object.(*hubv1alpha1.EndpointPage), KeyOf(object)
	var was *hubv1alpha1.Origin
	if old, ok := oldObject.(*hubv1alpha1.EndpointPage); ok {
		was = &old.Spec.Origin
	}
	if err := origin(s, k, &page.Spec.Origin, was); err != nil {
		return err
	}
	o := &page.Spec.Origin
	if page.Name != fmt.Sprintf("%d.%s.%s.%s", page.Spec.Number, o.ServiceName, o.ServiceNamespace, o.ClusterID) {
		return s.invalid(k, field.Invalid(field.NewPath(""), page.Name,
			"metadata.name must be <number>.<serviceName>.<serviceNamespace>.<clusterID>"))
	}
	return endpointGroup(s, k, &page.Spec.EndpointGroup)
}

func endpointGroup(s *Server, k Key, group *hubv1alpha1.EndpointGroup) error {
	if group.AddressType != discoveryv1.AddressTypeIPv4 && group.AddressType != discoveryv1.AddressTypeIPv6 {
		return s.invalid(
			k,
			field.Invalid(field.NewPath("spec", "addressType"), group.AddressType, "addressType is IPv4 or IPv6"),
		)
	}
	for _, p := range group.Ports {
		for _, number := range []*int32{&p.Port, p.Target} {
			if err := recordPort(s, k, p.Protocol, number); err != nil {
				return err
			}
		}
	}
	return nil
}

func recordPort(s *Server, k Key, protocol corev1.Protocol, number *int32) error {
	known := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	if !slices.Contains(known, protocol) || number != nil && (*number < 1 || *number > 65535) {
		return s.invalid(
			k,
			field.Invalid(
				field.NewPath("spec", "ports"),
				protocol,
				"a protocol of TCP, UDP, SCTP and a port of 1..65535",
			),
		)
	}
	return nil
}
