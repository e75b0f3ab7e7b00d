package resolution

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// The pools are small, so that values meet. Ids differ where an order other than bytewise would sort them
// otherwise; port names are
// called like those that unnamed ports and ports of derived Services get.
var (
	ids       = []string{"a", "a-b", "a.b", "a0", "ab", "b", "9", "10"}
	zones     = []*time.Location{time.UTC, time.FixedZone("east", 3600), time.FixedZone("west", -3600)}
	portNames = []string{"http", "web", "tcp-80", "tcp-80", "tcp-80-2", "clusterset-tcp-80"}
	numbers   = []int32{80, 81, 443}
	protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	apps      = []string{"", "", "http", "kubernetes.io/h2c"}

	types      = []mcsv1beta1.ServiceImportType{mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless}
	affinities = []corev1.ServiceAffinity{corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP}
	timeouts   = []int32{0, 1, 10800} // 0: no config
	policies   = []corev1.ServiceInternalTrafficPolicy{
		corev1.ServiceInternalTrafficPolicyCluster,
		corev1.ServiceInternalTrafficPolicyLocal,
	}
	preferences = []hubv1alpha1.Preference{
		hubv1alpha1.PreferNone,
		hubv1alpha1.PreferLocal,
		hubv1alpha1.LocalOnly,
		"cluster=b,any",
	}
	distributions = []string{"", corev1.ServiceTrafficDistributionPreferClose, "PreferSameNode"}
	familyLists   = [][]corev1.IPFamily{
		{corev1.IPv4Protocol},
		{corev1.IPv6Protocol},
		{corev1.IPv4Protocol, corev1.IPv6Protocol},
		{corev1.IPv6Protocol, corev1.IPv4Protocol},
	}
	published = []time.Duration{
		0, 0, 0, 0, 5 * time.Minute, 10 * time.Minute, 10*time.Minute + time.Second, time.Hour, time.Hour,
	}
	sets = []map[string]string{
		nil,
		{"tier": "gold"},
		{"tier": "silver"},
		{"tier": "gold", "team": "one"},
		{"team": ""},
	}
)

func pick[T any](r *rand.Rand, pool []T) T { return pool[r.IntN(len(pool))] }

// Random makes the exports of one name by one to six clusters, small and nasty, in any order. Two of them often
// agree in most, so that
// every reason is met alone, too. They share no memory, and their lists have spare capacity.
func Random(r *rand.Rand) []clusterset.Export {
	clusters := slices.Clone(ids)
	r.Shuffle(len(clusters), func(i, j int) { clusters[i], clusters[j] = clusters[j], clusters[i] })
	clusters = clusters[:1+r.IntN(6)]

	var exports []clusterset.Export
	for i, cluster := range clusters {
		export := clusterset.Export{Namespace: "test", Name: "web"}
		changes := properties
		if i > 0 {
			export = clone(pick(r, exports))
			changes = nil
			for range r.IntN(4) {
				changes = append(changes, pick(r, properties))
			}
		}
		for _, change := range changes {
			change(r, &export)
		}
		export.Cluster = cluster
		export.Created = time.Unix(1_700_000_000+int64(r.IntN(3)), 0).In(pick(r, zones))
		export.Published = time.Unix(1_800_000_000, 0).Add(pick(r, published)).In(pick(r, zones))
		if r.IntN(20) == 0 {
			export.Published = time.Time{} // a stand-in's
		}
		exports = append(exports, clone(export))
	}
	r.Shuffle(len(exports), func(i, j int) { exports[i], exports[j] = exports[j], exports[i] })
	return exports
}

// properties set one property each. Those with the most rules come several times.
var properties = []func(*rand.Rand, *clusterset.Export){
	func(r *rand.Rand, e *clusterset.Export) { e.Type = pick(r, types) },
	changePorts, changePorts,
	changePort, changePort, changePort,
	func(r *rand.Rand, e *clusterset.Export) {
		r.Shuffle(len(e.Ports), func(i, j int) { e.Ports[i], e.Ports[j] = e.Ports[j], e.Ports[i] })
	},
	func(r *rand.Rand, e *clusterset.Export) { e.SessionAffinity = pick(r, affinities) },
	func(r *rand.Rand, e *clusterset.Export) {
		e.SessionAffinityConfig = nil
		if timeout := pick(r, timeouts); timeout != 0 {
			e.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout},
			}
		}
	},
	func(r *rand.Rand, e *clusterset.Export) { e.InternalTrafficPolicy = pick(r, policies) },
	func(r *rand.Rand, e *clusterset.Export) { e.TrafficDistribution = pick(r, distributions) },
	func(r *rand.Rand, e *clusterset.Export) { e.Preference = pick(r, preferences) },
	func(r *rand.Rand, e *clusterset.Export) { e.MinReady = pick(r, []clusterset.MinReady{"", "2", "50%"}) },
	changeFamilies, changeFamilies, changeFamilies,
	func(r *rand.Rand, e *clusterset.Export) { e.Labels = pick(r, sets) },
	func(r *rand.Rand, e *clusterset.Export) { e.Annotations = pick(r, sets) },
}

func changeFamilies(r *rand.Rand, e *clusterset.Export) { e.Families = pick(r, familyLists) }

func randomPort(r *rand.Rand) clusterset.Port {
	return clusterset.Port{
		Name:        pick(r, portNames),
		Protocol:    pick(r, protocols),
		Number:      pick(r, numbers),
		AppProtocol: pick(r, apps),
	}
}

func changePorts(r *rand.Rand, e *clusterset.Export) { e.Ports = randomPorts(r) }

// randomPorts are none, as a headless Service may have it, one without a name, or up to four.
func randomPorts(r *rand.Rand) []clusterset.Port {
	switch r.IntN(8) {
	case 0:
		return nil
	case 1, 2, 3:
		port := randomPort(r)
		port.Name = ""
		return []clusterset.Port{port}
	}
	var list []clusterset.Port
	for range 1 + r.IntN(4) {
		if port := randomPort(r); fits(list, port) {
			list = append(list, port)
		}
	}
	return list
}

// changePort gives one port another name, number, protocol or appProtocol, where the Service stays valid with it.
func changePort(r *rand.Rand, e *clusterset.Export) {
	if len(e.Ports) == 0 {
		return
	}
	i := r.IntN(len(e.Ports))
	port, other := e.Ports[i], randomPort(r)
	switch r.IntN(4) {
	case 0:
		port.Name = other.Name
	case 1:
		port.Number = other.Number
	case 2:
		port.Protocol = other.Protocol
	case 3:
		port.AppProtocol = other.AppProtocol
	}
	rest := slices.Delete(slices.Clone(e.Ports), i, i+1)
	if fits(rest, port) {
		e.Ports[i] = port
	}
}

// fits is true where a Service with these ports may have that one, too.
func fits(list []clusterset.Port, port clusterset.Port) bool {
	return !slices.ContainsFunc(list, func(p clusterset.Port) bool {
		return p.Name == port.Name || p.Protocol == port.Protocol && p.Number == port.Number
	})
}

// clone copies an export with all that it points to. Its lists get spare capacity, where an append to them
// would show.
func clone(e clusterset.Export) clusterset.Export {
	e.Ports = spare(e.Ports)
	e.Families = spare(e.Families)
	e.SessionAffinityConfig = e.SessionAffinityConfig.DeepCopy()
	e.Labels = maps.Clone(e.Labels)
	e.Annotations = maps.Clone(e.Annotations)
	return e
}

// spare copies a list and its spare capacity. Nil stays nil.
func spare[T any](list []T) []T {
	if list == nil {
		return nil
	}
	with := make([]T, max(cap(list), len(list)+2))
	copy(with, list[:cap(list)])
	return with[:len(list)]
}
