package model

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// DefaultZone and DefaultTTL are the defaults of the options (O1).
const (
	DefaultZone = "clusterset.local."
	DefaultTTL  = 5
)

// Import is the kind of object that makes a service known.
type Import = mcsv1beta1.ServiceImport

// Objects is the whole state that answers come from. Of two imports with one namespace and name the last counts.
type Objects struct {
	Imports []Import
	Slices  []discoveryv1.EndpointSlice
}

// Config holds the options that decide answers (O1). Zone "" is DefaultZone. TTL is taken as it is, 0 included.
// Namespaces and Labels select everything when empty.
type Config struct {
	Zone             string
	TTL              uint32
	Nameservers      []netip.Addr
	EndpointPodNames bool
	NoEndpoints      bool
	Namespaces       []string
	Labels           labels.Selector
	Prefer           Preference
	Zonal            bool
}

// Defaults is the configuration without options, on a server bound to nameserver.
func Defaults(nameserver ...netip.Addr) Config {
	return Config{Zone: DefaultZone, TTL: DefaultTTL, Nameservers: nameserver}
}

// Outcome is what becomes of a question.
type Outcome int

const (
	Success   Outcome = iota
	NoData            // the name exists, the type does not (RFC 2308 §2.2)
	NameError         // NXDOMAIN
	NotOurs           // not our zone: the next plugin's
	Refused           // a transfer asked for where no transfer plugin took it (L6)
)

func (o Outcome) String() string {
	names := []string{"NOERROR", "NODATA", "NXDOMAIN", "NEXT", "REFUSED"}
	if o < 0 || int(o) >= len(names) {
		return "no outcome"
	}
	return names[o]
}

// Reply is the answer that the rules demand. Records are written "owner TYPE data", owners and names in data in lower
// case, sorted by tier, then by text; "SOA *" is any SOA. Tier tells which records must stand before which others (T2);
// a record that
// is not in it has tier 0. TTL is that of Answer. Extra is all that Additional may hold, and must where it fits;
// ExtraTTL is its TTL. NegativeTTL is the TTL of the SOA in a negative reply.
type Reply struct {
	Outcome     Outcome
	Zone        string
	Answer      []string
	Tier        map[string]int
	Extra       []string
	TTL         uint32
	ExtraTTL    uint32
	NegativeTTL uint32
}

// Model is a zone written down. Ask it rather than Answer when there are many questions about the same objects.
type Model struct {
	cfg     Config
	records map[string][]record // by owner
	exists  map[string]bool     // with records or as an empty non-terminal
	pending map[string]bool     // service names that wait for their first IP (N5)
	waiting map[string]bool     // names whose SRV records wait for it

	headless map[string][]endpoint // by service name
}

// record is one record; data is in presentation format.
type record struct {
	owner string
	rtype uint16
	data  string
	ttl   uint32
	glue  string // the name whose addresses go with it, if any
}

func (r record) String() string {
	return r.owner + " " + dns.TypeToString[r.rtype] + " " + r.data
}

// New writes the zone down. It panics on a configuration that O2 forbids: a zone that is no domain name.
func New(cfg Config, objs Objects) *Model {
	if cfg.Zone == "" {
		cfg.Zone = DefaultZone
	}
	zone, ok := fold(cfg.Zone)
	if !ok {
		panic("model: Config.Zone " + cfg.Zone + " is no domain name")
	}
	cfg.Zone = zone
	m := empty(cfg)
	m.addZone()
	m.addServices(objs)
	return m
}

func empty(cfg Config) *Model {
	return &Model{
		cfg:      cfg,
		records:  map[string][]record{},
		exists:   map[string]bool{},
		pending:  map[string]bool{},
		waiting:  map[string]bool{},
		headless: map[string][]endpoint{},
	}
}

// add writes one record down. A name that is too long has none, and no record stands twice (M2).
func (m *Model) add(r record) {
	m.exist(r.owner)
	if !possible(r.owner) {
		return
	}
	if !slices.Contains(m.records[r.owner], r) {
		m.records[r.owner] = append(m.records[r.owner], r)
	}
}

// exist makes a name exist, and with it every name between it and the apex: an empty non-terminal exists (N4, N13),
// even if the name itself is too long to exist (N12).
func (m *Model) exist(name string) {
	for ; name != m.cfg.Zone; name = parent(name) {
		if possible(name) {
			m.exists[name] = true
		}
	}
	m.exists[m.cfg.Zone] = true
}

// Answer gives the reply to one question of class IN.
func (m *Model) Answer(qname string, qtype uint16) Reply {
	reply := Reply{Zone: m.cfg.Zone, ExtraTTL: m.cfg.TTL, NegativeTTL: m.cfg.TTL} // M2
	name, ok := fold(qname)                                                       // M1: names match without case
	if !ok || !dns.IsSubDomain(m.cfg.Zone, name) {
		reply.Outcome = NotOurs // N19
		return reply
	}
	if qtype == dns.TypeAXFR || qtype == dns.TypeIXFR {
		reply.Outcome = Refused // L6
		return reply
	}
	if zonal, ok := m.zonal(name, qtype); ok {
		return zonal
	}
	if !m.exists[name] {
		reply.Outcome = NameError // N12, and every name that no other rule makes
		return reply
	}
	reply.Tier = map[string]int{}
	for tier, records := range m.answer(name, qtype) {
		for _, r := range records {
			reply.Answer = append(reply.Answer, r.String())
			reply.Tier[r.String()] = tier
			reply.TTL = r.ttl
			for _, address := range m.records[r.glue] { // M3, N1: addresses of both families
				if address.rtype == dns.TypeA || address.rtype == dns.TypeAAAA {
					reply.Extra = append(reply.Extra, address.String())
				}
			}
		}
	}
	if len(reply.Answer) == 0 {
		reply.Outcome = NoData
		if m.pending[name] && (qtype == dns.TypeA || qtype == dns.TypeAAAA) || m.waiting[name] && qtype == dns.TypeSRV {
			reply.NegativeTTL = min(1, m.cfg.TTL) // N5
		}
		return reply
	}
	slices.SortFunc(reply.Answer, func(a, b string) int {
		return cmp.Or(cmp.Compare(reply.Tier[a], reply.Tier[b]), cmp.Compare(a, b))
	})
	slices.Sort(reply.Extra)
	reply.Extra = slices.Compact(reply.Extra) // M2: no duplicates; two ports may have one target
	return reply
}

// answer gives the records of a name and type, those of each list before those of the next. M5: nothing has type ANY.
func (m *Model) answer(name string, qtype uint16) [][]record {
	all := slices.DeleteFunc(slices.Clone(m.records[name]), func(r record) bool { return r.rtype != qtype })
	if len(all) > 0 && len(m.claims(name, qtype)) > 0 {
		return m.prefer(name, qtype)
	}
	return [][]record{all}
}

// Names lists every name that exists, sorted.
func (m *Model) Names() []string {
	names := []string{}
	for name := range m.exists {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Zone lists every record, sorted: what a transfer holds (L6). The SOA stands as "SOA *".
func (m *Model) Zone() []string {
	all := []string{}
	for _, records := range m.records {
		for _, r := range records {
			all = append(all, r.String())
		}
	}
	slices.Sort(all)
	return all
}

// Answer is New(cfg, objs).Answer(qname, qtype).
func Answer(cfg Config, objs Objects, qname string, qtype uint16) Reply {
	return New(cfg, objs).Answer(qname, qtype)
}

// Names is New(cfg, objs).Names().
func Names(cfg Config, objs Objects) []string { return New(cfg, objs).Names() }

// Zone is New(cfg, objs).Zone().
func Zone(cfg Config, objs Objects) []string { return New(cfg, objs).Zone() }
