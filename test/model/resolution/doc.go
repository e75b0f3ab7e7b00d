// Package resolution is DESIGN §4 ("Resolution: Merge", SPEC C1–C9) as a slow and obvious program: given what
// the clusters export under one namespaced name, it says what the clusterset exports and on which properties the
// clusters disagree. One function per row
// of the table.
//
// It is the oracle of the property tests of controllers/decide/conflict, and by objects.go of the simulation and
// the soak. It shares no code with that package but the types of its
// result, and was written from the text alone; where the text is silent, README.md names the reading taken.
//
// It knows one finished result only. Left out on purpose: what a cluster supports (applied after it), and the order
// of writes that
// keeps live traffic through a change (the rest of C9).
package resolution
