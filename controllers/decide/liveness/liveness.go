// Package liveness decides what a member's Lease lets others believe (DESIGN §2, §7). Pure: what the Lease states, what the hub shows and
// what is held here, in; whether what is missing is gone by its owner's word, out.
package liveness

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// AnnotationRecords on a member's Lease states how many records it has that are not withdrawn, and a hash of their names.
const AnnotationRecords = "clusterset-dns.io/records"

// Statement is the annotation's value for these names; their order does not matter.
func Statement(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return strconv.Itoa(len(sorted)) + " " + hex.EncodeToString(sum[:16])
}

// Complete tells whether the hub shows exactly the set that a member states, so that what is held and not shown is gone by the owner's
// word. shown are the names of the member's records on the hub that are not withdrawn, withdrawn those that are, held those in effect
// here. More than ten and more than half of them gone at once, without one withdrawal, is not believed: rather a member lost its memory.
func Complete(stated string, shown, withdrawn, held []string) (bool, error) {
	if stated == "" || stated != Statement(shown) {
		return false, nil
	}
	there := make(map[string]bool, len(shown)+len(withdrawn))
	for _, n := range append(slices.Clone(shown), withdrawn...) {
		there[n] = true
	}
	gone := 0
	for _, n := range held {
		if !there[n] {
			gone++
		}
	}
	if gone > 10 && gone > len(held)/2 {
		return false, fmt.Errorf("%d of %d records are gone at once, none of them withdrawn: they stay in effect until their owner publishes them again, withdraws them, or leaves", gone, len(held))
	}
	return true, nil
}
