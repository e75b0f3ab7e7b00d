package liveness

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// AnnotationRecords on a member's Lease on the hub states how many records the member has, without withdrawn ones,
// and a hash of their names.
const AnnotationRecords = "clusterset-dns.io/records"

// Statement returns the value of AnnotationRecords for these record names, in any order.
func Statement(names []string) string {
	sorted := slices.Sorted(slices.Values(names))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "\n")))
	return strconv.Itoa(len(sorted)) + " " + hex.EncodeToString(sum[:16])
}

// Complete reports whether the hub shows exactly the records that a member stated, so that a record that is held but
// not shown was deleted by its owner. shown and withdrawn are the names of the member's records on the hub, held
// those that are in effect here. Complete returns an error if more than ten and more than half of the held records
// are gone at once without a withdrawal: the member may have lost its data.
func Complete(stated string, shown, withdrawn, held []string) (bool, error) {
	if stated == "" || stated != Statement(shown) {
		return false, nil
	}
	onHub := make(map[string]bool, len(shown)+len(withdrawn))
	for _, n := range slices.Concat(shown, withdrawn) {
		onHub[n] = true
	}
	gone := 0
	for _, n := range held {
		if !onHub[n] {
			gone++
		}
	}
	if gone > 10 && gone > len(held)/2 {
		return false, fmt.Errorf("%d of %d records are gone at once and none was withdrawn: "+
			"they stay in effect until their owner publishes them again, withdraws them, or leaves", gone, len(held))
	}
	return true, nil
}
