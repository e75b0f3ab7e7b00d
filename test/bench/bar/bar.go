// Package bar keeps what the pages of figures promise: a bar that does not hold is marked on its page, and ends its
// program with an error.
package bar

import (
	"fmt"
	"strings"
)

// Missed are the rows whose bar does not hold.
type Missed []string

// Holds is a cell of the column holds: yes, or **no**, which is remembered.
func (m *Missed) Holds(row string, holds bool) string {
	if holds {
		return "yes"
	}
	*m = append(*m, row)
	return "**no**"
}

// Err names the rows; nil where every bar holds.
func (m Missed) Err() error {
	if len(m) == 0 {
		return nil
	}
	return fmt.Errorf("%d bars do not hold (**no** in the column holds):\n  %s", len(m), strings.Join(m, "\n  "))
}
