package model

import (
	"math/rand/v2"
	"strings"

	"github.com/miekg/dns"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

var questionTypes = []uint16{
	dns.TypeA, dns.TypeA, dns.TypeA, dns.TypeAAAA, dns.TypeAAAA, dns.TypeSRV, dns.TypeSRV, dns.TypeSRV, dns.TypeTXT,
	dns.TypeNS, dns.TypeSOA, dns.TypeMX, dns.TypeCNAME, dns.TypePTR, dns.TypeHTTPS, dns.TypeDS, dns.TypeANY,
}

// Questions makes n questions worth asking in the default zone: names that exist, names that slices suggest whether or
// not
// they exist, near misses of both, a few of other zones; in mixed case; of all types.
func Questions(r *rand.Rand, objs Objects, n int) []Question {
	names := append(Names(Defaults(), objs), suggested(objs)...)
	questions := make([]Question, 0, n)
	for range n {
		name := pick(r, names)
		if oneIn(r, 3) {
			name = nearMiss(r, name)
		}
		if oneIn(r, 4) {
			name = mixCase(r, name)
		}
		questions = append(questions, Question{Name: name, Type: pick(r, questionTypes)})
	}
	return questions
}

// suggested lists the names that careless code would make out of the objects: of skipped slices, of endpoints that are
// not
// ready, of services with a clusterset IP, of ids alone. Names that fit into no question are left out.
func suggested(objs Objects) []string {
	var names []string
	propose := func(base string, labels ...string) {
		if name, ok := fold(strings.Join(append(labels, base), ".")); ok {
			names = append(names, name)
		}
	}
	for _, slice := range objs.Slices {
		cluster := slice.Labels[mcsv1beta1.LabelSourceCluster]
		base := strings.Join(
			[]string{slice.Labels[mcsv1beta1.LabelServiceName], slice.Namespace, "svc", DefaultZone},
			".",
		)
		propose(base)
		propose(base, cluster)
		propose(base, "pin", "_zone")
		propose(base, "_zone")
		for _, ep := range slice.Endpoints {
			if ep.Hostname != nil {
				propose(base, *ep.Hostname, cluster)
				propose(base, *ep.Hostname)
			}
			for _, text := range ep.Addresses {
				if addr, ok := address(text); ok {
					propose(base, dashed(addr), cluster)
				}
			}
			for _, directive := range []string{"pin", "prefer", "x"} {
				propose(base, value(ep.Zone), directive, "_zone")
			}
			if ep.TargetRef != nil {
				propose(base, ep.TargetRef.Name, cluster)
			}
		}
		for _, p := range slice.Ports {
			for _, protocol := range []string{"_tcp", "_udp"} {
				propose(base, "_"+value(p.Name), protocol)
				propose(base, "_"+value(p.Name), protocol, cluster)
			}
		}
	}
	for _, imp := range objs.Imports {
		base := strings.Join([]string{imp.Name, imp.Namespace, "svc", DefaultZone}, ".")
		propose(base)
		for _, p := range imp.Spec.Ports {
			propose(base, "_"+p.Name, "_tcp")
		}
	}
	return names
}

// nearMiss changes a name by one label. What no question can hold is left as it was.
func nearMiss(r *rand.Rand, name string) string {
	labels := dns.SplitDomainName(name)
	if len(labels) == 0 {
		return name
	}
	at := r.IntN(len(labels))
	switch r.IntN(8) {
	case 0:
		labels = append(labels[:at], labels[at+1:]...)
	case 1:
		labels = append(
			[]string{
				pick(
					r,
					[]string{
						"x",
						"_tcp",
						"_https",
						"*",
						"any",
						"10-1-0-1",
						"eu",
						"_",
						"_zone",
						"eu-1a.pin._zone",
						"eu-2.prefer._zone",
					},
				),
			},
			labels...)
	case 2:
		labels[at] = strings.TrimPrefix(labels[at], "_")
	case 3:
		labels[at] = "_" + labels[at]
	case 4:
		labels[at] += "x"
	case 5:
		labels[at] = pick(r, []string{"*", "any", "_", "pod", "svc", "dns", "ns", "test", `\000`, `a\.b`})
	case 6:
		labels[0] = pick(r, append(hosts, "_https", "_tcp", "dns-version"))
	case 7:
		return pick(r, []string{
			".",
			"local.",
			"cluster.local.",
			"xclusterset.local.",
			`x\.clusterset.local.`,
			"42.42.42.10.in-addr.arpa.",
			"web.test.svc.cluster.local.",
			"dns-version." + DefaultZone,
			"ns.dns." + DefaultZone,
		})
	}
	if missed, ok := fold(strings.Join(labels, ".")); ok {
		return missed
	}
	return name
}

// mixCase leaves escapes alone: they are digits and punctuation.
func mixCase(r *rand.Rand, name string) string {
	mixed := []byte(name)
	for i, c := range mixed {
		if 'a' <= c && c <= 'z' && oneIn(r, 2) {
			mixed[i] = c - 'a' + 'A'
		}
	}
	return string(mixed)
}
