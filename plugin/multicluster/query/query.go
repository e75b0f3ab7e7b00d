// Package query reads a question's name: which zone it is in, and which form the part in front of the zone has. It
// knows the grammar of DNS.md and nothing of what exists.
package query

import "strings"

// Kind is the form of a name within its zone.
type Kind uint8

// The forms of names. A name of None has no form (N12, N18), so it cannot exist.
const (
	None      Kind = iota
	Apex           // the zone (N1)
	Version        // dns-version (N3)
	NS             // ns.dns (N2)
	Empty          // svc and dns, which only have names below them (N4)
	Namespace      // <ns>.svc (N4, N13)
	Service        // <svc>.<ns>.svc (N5, N6, N7)
	Proto          // _<proto>.<svc>.<ns>.svc (N4)
	Port           // _<port>._<proto>.<svc>.<ns>.svc (N8)
	Host           // <hostname>.<clusterid>.<svc>.<ns>.svc, or a part of it; a cluster ID may have two labels (N9, N14)
	Zoned          // <zone>.pin._zone.<svc>.<ns>.svc, <zone>.prefer._zone…, pin._zone…, prefer._zone… (N12)
)

// Query is a parsed name. All strings are in lower case.
type Query struct {
	Kind Kind
	// Service is "<svc>.<ns>", and of a Namespace "<ns>".
	Service string
	// Below is what stands in front of the Service:
	//	Host   "<hostname>.<clusterid>" or "<clusterid>"
	//	Port   the port's name, without underscore
	//	Zoned  the topology zone, or ""
	Below string
	// Pin is true in a Zoned name with pin, and false with prefer.
	Pin bool
	// Proto is the protocol of a Port or Proto, without underscore.
	Proto string
}

// Zone returns the index of the longest of the zones (lower case, fully qualified) that has a name, in any case, and
// the offset of that zone in the name; -1 if none has it.
func Zone(zones []string, name string) (zone, at int) {
	zone = -1
	for i, z := range zones {
		if (zone < 0 || len(z) > len(zones[zone])) && under(name, z) {
			zone, at = i, len(name)-len(z)
		}
	}
	return zone, at
}

// under reports whether the labels of name end in those of zone, without case (RFC 4343). Names are in presentation
// format, whose octets are ASCII.
func under(name, zone string) bool {
	at := len(name) - len(zone)
	if at < 0 || !strings.EqualFold(name[at:], zone) {
		return false
	}
	if at == 0 || zone == "." {
		return true
	}
	if name[at-1] != '.' {
		return false
	}
	// The dot separates labels unless it is escaped: an odd number of backslashes stands before it.
	escapes := 0
	for i := at - 2; i >= 0 && name[i] == '\\'; i-- {
		escapes++
	}
	return escapes%2 == 0
}

// Parse reads the part of a name in front of its zone: everything before the offset that Zone found.
func Parse(name string, at int) Query {
	rel := strings.ToLower(strings.TrimSuffix(name[:at], "."))
	switch {
	case rel == "":
		return Query{Kind: Apex}
	case strings.IndexByte(rel, '\\') >= 0:
		// An octet that needs escaping: objects, ports and cluster IDs have letters, digits and dashes.
		return Query{}
	case rel == "dns":
		return Query{Kind: Empty}
	case rel == "ns.dns":
		return Query{Kind: NS}
	case rel == "dns-version":
		return Query{Kind: Version}
	}
	if rest, last := cutLast(rel); last == "svc" {
		return parseService(rest)
	}
	return Query{}
}

// parseService reads what stands before svc.<zone>.
func parseService(rel string) Query {
	if rel == "" {
		return Query{Kind: Empty}
	}
	rest, ns := cutLast(rel)
	if rest == "" {
		return Query{Kind: Namespace, Service: ns}
	}
	below, svc := cutLast(rest)
	q := Query{Service: rel[len(rel)-len(ns)-1-len(svc):]} // a part of rel, so that nothing is allocated
	if below == "" {
		q.Kind = Service
		return q
	}
	first, last := cutLast(below)
	if !strings.HasPrefix(last, "_") { // last can be empty: a rewrite can make empty labels
		if strings.Count(below, ".") > 2 || below[0] == '_' {
			return Query{}
		}
		q.Kind, q.Below = Host, below
		return q
	}
	q.Proto = last[1:]
	switch {
	case q.Proto == "":
		return Query{}
	case first == "":
		q.Kind = Proto
	case first[0] == '_' && len(first) > 1 && strings.IndexByte(first, '.') < 0: // one label (N18)
		q.Kind, q.Below = Port, first[1:]
	case q.Proto == "zone": // not a protocol: the label _zone separates zone and directive from the Service (N12)
		var directive string
		q.Below, directive = cutLast(first)
		if q.Pin = directive == "pin"; !q.Pin && directive != "prefer" {
			return Query{}
		}
		q.Kind, q.Proto = Zoned, ""
	default:
		return Query{}
	}
	return q
}

// cutLast cuts the last label off.
func cutLast(s string) (rest, last string) {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", s
}
