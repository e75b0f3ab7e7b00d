package ipam

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

const us = "us"

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// healthy is one import with its Service, IPAddress and range, all old.
func healthy() Seen {
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{derived.LabelManagedBy: us}}}
	imp.Spec.IPs = []string{"10.0.0.5"}
	return Seen{
		Imports: []*mcsv1beta1.ServiceImport{imp}, Services: []*corev1.Service{service("web", "10.0.0.5", time.Hour)},
		Addresses: []*networkingv1.IPAddress{ipAddress("10.0.0.5", APIServer, serviceRef(derived.Name("shop", "web")), time.Hour)},
		Ranges:    []*networkingv1.ServiceCIDR{cidr("own", "10.0.0.0/24")}, Manager: us, Now: now,
	}
}

func service(imp, ip string, age time.Duration) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", imp), CreationTimestamp: ago(age),
		Labels: map[string]string{derived.LabelManagedBy: us}, Annotations: map[string]string{derived.AnnotationImport: "shop/" + imp}}}
	svc.Spec.ClusterIPs = []string{ip}
	return svc
}

func ordinary(name, ip string, age time.Duration) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: ago(age)}}
	svc.Spec.ClusterIPs = []string{ip}
	return svc
}

func ipAddress(ip, manager string, ref networkingv1.ParentReference, age time.Duration) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: ip, UID: types.UID("uid " + ip), CreationTimestamp: ago(age),
		Labels: map[string]string{networkingv1.LabelManagedBy: manager}}, Spec: networkingv1.IPAddressSpec{ParentRef: &ref}}
}

func serviceRef(name string) networkingv1.ParentReference {
	return networkingv1.ParentReference{Resource: "services", Namespace: "shop", Name: name}
}

func fenceRef(name string) networkingv1.ParentReference {
	return networkingv1.ParentReference{Group: networkingv1.GroupName, Resource: "servicecidrs", Name: name}
}

func cidr(name, prefix string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{prefix}}}
}

func (s *Seen) add(ips ...*networkingv1.IPAddress) { s.Addresses = append(s.Addresses, ips...) }

// broken has a row for each way in which the relation breaks, and for what must not be taken for one.
var broken = map[string]struct {
	spoil func(*Seen)
	want  string // kind, action, address or Service of each finding
}{
	"nothing": {func(*Seen) {}, ""},

	"IPAddress deleted":                {func(s *Seen) { s.Addresses = nil }, "VIPMissing Create 10.0.0.5"},
	"IPAddress of a new Service":       {func(s *Seen) { s.Addresses, s.Services[0].CreationTimestamp = nil, ago(0) }, "VIPMissing Create 10.0.0.5"},
	"API server without IPAddresses":   {func(s *Seen) { s.Addresses, s.Ranges, s.Unsupported = nil, nil, true }, ""},
	"derived Service deleted":          {func(s *Seen) { s.Services, s.Addresses = nil, nil }, "VIPMissing Requeue -"},
	"import of somebody else":          {func(s *Seen) { s.Services, s.Addresses, s.Imports[0].Labels = nil, nil, nil }, ""},
	"Service without import":           {func(s *Seen) { s.Imports = nil }, "VIPLeaked Requeue -"},
	"Service in quarantine":            {func(s *Seen) { s.Imports = nil; unused(s.Services[0], 59*time.Minute) }, ""},
	"Service whose quarantine is over": {func(s *Seen) { s.Imports = nil; unused(s.Services[0], 61*time.Minute) }, "VIPLeaked Requeue -"},
	"Service that is being deleted":    {func(s *Seen) { s.Services[0].DeletionTimestamp, s.Addresses = &metav1.Time{Time: now}, nil }, ""},
	"copy in another namespace": {func(s *Seen) {
		copied := service("web", "10.0.0.6", time.Hour)
		copied.Namespace = "clone"
		s.Services = append(s.Services, copied)
		s.add(ipAddress("10.0.0.6", APIServer, networkingv1.ParentReference{Resource: "services", Namespace: "clone", Name: copied.Name}, time.Hour))
	}, "VIPLeaked Report -"},
	"one that the agent never made": {func(s *Seen) {
		s.Services = append(s.Services, service("web", "10.0.0.6", time.Hour))
		s.Services[1].Name, s.Services[1].Annotations = "derived-0123456789", nil
		s.add(ipAddress("10.0.0.6", APIServer, serviceRef("derived-0123456789"), time.Hour))
	}, "VIPLeaked Report -"},
	"one that names another's import": {func(s *Seen) {
		s.Services = append(s.Services, service("web", "10.0.0.6", time.Hour))
		s.Services[1].Name = "derived-0123456789"
		s.add(ipAddress("10.0.0.6", APIServer, serviceRef("derived-0123456789"), time.Hour))
	}, "VIPLeaked Report -"},
	"one that lost its import's name":    {func(s *Seen) { s.Services[0].Annotations = nil }, ""},
	"leak of the API server":             {func(s *Seen) { s.add(ipAddress("10.0.0.6", APIServer, serviceRef("derived-0123456789"), time.Hour)) }, "VIPLeaked Delete 10.0.0.6"},
	"left of a Service with such a name": {func(s *Seen) { s.add(ipAddress("10.0.0.6", APIServer, serviceRef("derived-gone"), time.Hour)) }, ""},
	"leak of an ordinary Service":        {func(s *Seen) { s.add(ipAddress("10.0.0.6", APIServer, serviceRef("gone"), time.Hour)) }, ""},
	"fence":                              {func(s *Seen) { s.add(ipAddress("10.0.0.6", us, fenceRef("own"), time.Hour)) }, ""},
	"fence without ServiceCIDR":          {func(s *Seen) { s.add(ipAddress("10.9.0.6", us, fenceRef("gone"), time.Hour)) }, "VIPLeaked Delete 10.9.0.6"},
	"young fence without ServiceCIDR":    {func(s *Seen) { s.add(ipAddress("10.9.0.6", us, fenceRef("gone"), 59*time.Second)) }, ""},
	"fence that is being made":           {func(s *Seen) { s.add(ipAddress("10.9.0.6", us, fenceRef("soon"), time.Hour)); s.Fencing = fencing }, ""},
	"ours, and refers to anything":       {func(s *Seen) { s.add(ipAddress("10.0.0.6", us, serviceRef("x"), time.Hour)) }, "VIPLeaked Delete 10.0.0.6"},
	"another controller's":               {func(s *Seen) { s.add(ipAddress("10.0.0.6", "other", fenceRef("gone"), time.Hour)) }, ""},
	"range deleted by force":             {func(s *Seen) { s.Ranges = nil }, "VIPOutOfRange Report 10.0.0.5"},
	"range is terminating":               {func(s *Seen) { s.Ranges[0].DeletionTimestamp = &metav1.Time{Time: now} }, ""},
	"out of range and without IPAddress": {func(s *Seen) { s.Ranges, s.Addresses = nil, nil }, "VIPOutOfRange Report 10.0.0.5"},

	"two Services, the IPAddress is ours": {func(s *Seen) { s.Services = append(s.Services, ordinary("x", "10.0.0.5", 2*time.Hour)) }, "VIPDoubled Report x"},
	"two Services, the IPAddress is the other's": {func(s *Seen) {
		s.Services = append(s.Services, ordinary("x", "10.0.0.5", time.Minute))
		s.Addresses[0].Spec.ParentRef.Name = "x"
	}, "VIPDoubled Report web"},
	"two derived Services": {func(s *Seen) {
		s.Services = append(s.Services, service("api", "10.0.0.5", 2*time.Hour))
		s.Imports = append(s.Imports, &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api"}})
	}, "VIPDoubled Report api"},
	"two ordinary Services": {func(s *Seen) {
		s.Services = append(s.Services, ordinary("x", "10.0.0.7", 0), ordinary("y", "10.0.0.7", 0))
	}, ""},

	"refers to a Service that is not": {func(s *Seen) { s.Addresses[0].Spec.ParentRef.Name = "x" }, "VIPReferencesSomeother Replace 10.0.0.5"},
	"refers to a Service that is not yet": {func(s *Seen) {
		s.Addresses[0] = ipAddress("10.0.0.5", APIServer, serviceRef("x"), 59*time.Second)
	}, ""},
	"refers to a fence": {func(s *Seen) { s.Addresses[0] = ipAddress("10.0.0.5", us, fenceRef("own"), 0) }, "VIPReferencesSomeother Replace 10.0.0.5"},
	"another controller has it": {func(s *Seen) {
		s.Addresses[0].Labels[networkingv1.LabelManagedBy] = "other"
		s.Addresses[0].Spec.ParentRef.Name = "x"
	}, "VIPReferencesSomeother Report 10.0.0.5"},
	"refers to nothing":                     {func(s *Seen) { s.Addresses[0].Spec.ParentRef = nil }, "VIPReferencesSomeother Replace 10.0.0.5"},
	"refers to another kind with our names": {func(s *Seen) { s.Addresses[0].Spec.ParentRef.Group = "x" }, "VIPReferencesSomeother Replace 10.0.0.5"},
}

func TestV4(t *testing.T) {
	for name, row := range broken {
		t.Run(name, func(t *testing.T) {
			seen := healthy()
			row.spoil(&seen)
			findings, _ := Repair(seen)
			var got []string
			for _, f := range findings {
				what := "-"
				if f.Address.IsValid() {
					what = f.Address.String()
				}
				if f.Kind == Doubled {
					if what = f.Service.Name; f.Owner.Name != "" {
						what = f.Owner.Name
					}
				}
				got = append(got, strings.Join([]string{string(f.Kind), string(f.Action), what}, " "))
				if (f.Action == Delete || f.Action == Replace) && f.UID != types.UID("uid "+f.Address.String()) {
					t.Errorf("deletes %q", f.UID)
				}
			}
			if strings.Join(got, ", ") != row.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), row.want)
			}
		})
	}
}

// TestV4WhoMayDeleteIsTold: a policy of ours lets only the agent delete a derived Service, and anybody a copy of one, or a user's own.
func TestV4WhoMayDeleteIsTold(t *testing.T) {
	broken := maps.Clone(broken)
	broken["out of range, in another namespace"] = struct {
		spoil func(*Seen)
		want  string
	}{func(s *Seen) { s.Services[0].Namespace, s.Ranges = "clone", nil }, ""}
	for name, agent := range map[string]bool{
		"range deleted by force": true, "out of range, in another namespace": false, "another controller has it": true,
		"two derived Services": true, "two Services, the IPAddress is ours": false, "two Services, the IPAddress is the other's": true, "copy in another namespace": false,
	} {
		seen, reported := healthy(), false
		broken[name].spoil(&seen)
		findings, _ := Repair(seen)
		for _, f := range findings {
			if f.Action == Report {
				if reported = true; strings.HasSuffix(f.Message, AsAgent) != agent {
					t.Errorf("%s: %s", name, f.Message)
				}
			}
		}
		if !reported {
			t.Errorf("%s: nothing is told: %v", name, findings)
		}
	}
}

var fencing = []netip.Prefix{prefix("10.9.0.0/24")}

func unused(svc *corev1.Service, since time.Duration) {
	svc.Annotations[derived.AnnotationUnusedSince] = now.Add(-since).Format(time.RFC3339)
}

// TestV4ComesBackWhenTheGraceIsOver: the soonest of what is too young to be judged.
func TestV4ComesBackWhenTheGraceIsOver(t *testing.T) {
	seen := healthy()
	seen.add(ipAddress("10.9.0.6", us, fenceRef("gone"), 10*time.Second), ipAddress("10.9.0.7", us, fenceRef("gone"), 20*time.Second))
	found, next := Repair(seen)
	if len(found) > 0 || !next.Equal(now.Add(40*time.Second)) {
		t.Fatalf("%v, next %s", found, next)
	}
	seen.Now = next
	if found, next = Repair(seen); len(found) != 1 || found[0].Address != addr("10.9.0.7") || !next.Equal(now.Add(50*time.Second)) {
		t.Errorf("%v, next %s", found, next)
	}
}

// TestReferenceIsTheAPIServersOwn: labels and reference as its repair loop demands them.
func TestReferenceIsTheAPIServersOwn(t *testing.T) {
	ip := Reference(addr("fd00::a"), types.NamespacedName{Namespace: "shop", Name: "derived-x"})
	if ip.Name != "fd00::a" || ip.Labels["ipaddress.kubernetes.io/managed-by"] != "ipallocator.k8s.io" || ip.Labels["ipaddress.kubernetes.io/ip-family"] != "IPv6" ||
		*ip.Spec.ParentRef != serviceRef("derived-x") {
		t.Errorf("%+v", ip)
	}
}

func TestV1RangesOfAServiceCIDR(t *testing.T) {
	c := cidr("x", "10.0.0.7/24")
	c.Spec.CIDRs = append(c.Spec.CIDRs, "fd00::/64", "::ffff:10.0.0.0/104", "nonsense")
	c.Labels = map[string]string{LabelVIPs: "exclusive"}
	got, err := Ranges(c)
	want := []Range{{"x", prefix("10.0.0.0/24"), Ready, Exclusive}, {"x", prefix("fd00::/64"), Ready, Exclusive}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] || err == nil {
		t.Errorf("%v %v", got, err)
	}
	c.Spec.CIDRs = c.Spec.CIDRs[:1]
	for name, row := range map[string]struct {
		change func()
		state  State
		use    Use
		wrong  bool
	}{
		"ready":       {func() { c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}} }, Ready, Exclusive, false},
		"not ready":   {func() { c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False"}} }, NotReady, Exclusive, false},
		"drain":       {func() { c.Annotations = map[string]string{AnnotationDrain: ""} }, Draining, Exclusive, false},
		"terminating": {func() { c.DeletionTimestamp = &metav1.Time{Time: now} }, Terminating, Exclusive, false},
		"shared":      {func() { c.Labels[LabelVIPs] = "shared" }, Ready, Shared, false},
		"no label":    {func() { c.Labels = nil }, Ready, Ordinary, false},
		"misspelt":    {func() { c.Labels[LabelVIPs] = "exklusiv" }, Ready, Ordinary, true},
	} {
		c = cidr("x", "10.0.0.0/24")
		c.Labels = map[string]string{LabelVIPs: "exclusive"}
		row.change()
		got, err := Ranges(c)
		if got[0].State != row.state || got[0].Use != row.use || (err != nil) != row.wrong {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}
