// Package model is DNS.md as a slow and obvious program: given ServiceImports, EndpointSlices and a question, it says
// what the rules demand. It writes the whole zone down as a list of records and answers by looking names up in it, as a
// zone file would; so a transfer and the queries agree by construction, and empty non-terminals need no rule of their
// own.
//
// It is the oracle of fuzz tests, property tests and the case runner. It shares no code with the product and was
// written from the text alone; rule numbers stand beside the lines that carry the rule out. Where the text is open,
// README.md names the reading taken.
//
// It knows one finished state only. Left out on purpose: watches, the time before the first build (L1–L5), the SOA
// serial (M4), max_endpoints (M6), namespace_labels, fallthrough, and the order of records but for preference (T2).
//
// It is total: no objects make it panic. What cannot be a name in DNS is not answered, and nothing else suffers:
//
//   - A label is one to 63 letters, digits and inner hyphens, as in RFC 1123; upper case is folded first (RFC 4343).
//   - An import whose name or namespace is no such label has no names. (A CRD's objects may have dots in their names.)
//   - A host name that is no label, or whose full name is longer than 255 octets on the wire, has no records and is no
//     target of SRV. Its addresses still answer at the service name, as N6 demands of every ready endpoint, and the
//     other endpoints of the slice are untouched. A pod name that is no label is passed over for the address (N15).
//   - A port whose name is no label, or is 63 long and so cannot take the underscore, has no _port._proto name. It is
//     still a named port, so the service name lists it (N7).
//   - A port without a number, or with one outside 1–65535, has no SRV record.
//   - An address that does not parse, has a zone, is an IPv4-mapped IPv6 address or is not of the slice's family is
//     left out; an endpoint without any other address is no endpoint.
//   - An import that is neither ClusterSetIP nor Headless has no names; a slice of unknown address type is skipped.
package model
