// Package sim runs the agents of several members and their hub in memory, on simulated API servers (package api) and a
// simulated clock, with no goroutine and no source of chance but one seed: the seed replays everything. Each step is
// chosen by it: an event reaches a cache, a reconciler makes one pass, the clock moves, a user does something,
// something fails. Before every write of a pass other steps may happen, so passes interleave as on real machines.
//
// A run is a row of episodes: trouble, then quiet. What must hold throughout is checked at every write (guard.go,
// traffic.go); what must hold in the end is computed from the users' objects by a model of the text (expect.go,
// test/model/resolution), never by the reconcilers' code. README.md lists the invariants, the faults, and what was
// found.
package sim
