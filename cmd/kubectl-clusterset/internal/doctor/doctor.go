// Package doctor finds what is wrong with a member, its hub and its DNS, and says what to do. Pure: facts in, findings out. Every check
// is a function of its own and knows no other.
package doctor

import (
	"fmt"
	"slices"
)

// Severity is how bad a finding is.
type Severity string

// The severities. An error keeps something from working; a warning will, or makes it worse than it need be.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing that is wrong.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	What     string   `json:"what"`
	Remedy   string   `json:"remedy"`
}

// Check looks for one kind of mistake.
type Check struct {
	Name  string
	Needs []Topic
	Look  func(f *Facts) []Finding
}

// Outcome is what became of one check.
type Outcome struct {
	Check string `json:"check"`
	// NotMade says why it was not made.
	NotMade  string    `json:"notMade,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// Report is the examination.
type Report struct {
	Cluster    string    `json:"cluster,omitempty"`
	ClusterSet string    `json:"clusterSet,omitempty"`
	Outcomes   []Outcome `json:"outcomes"`
}

// Checks is the list, in the order in which causes come before their consequences.
func Checks() []Check {
	return slices.Concat(memberChecks, credentialChecks, hubChecks, dnsChecks, rangeChecks, poolChecks)
}

// Examine makes every check that it has the facts for.
func Examine(f *Facts) Report {
	r := Report{Cluster: f.ID, ClusterSet: f.Set}
	for _, c := range Checks() {
		o := Outcome{Check: c.Name}
		for _, t := range c.Needs {
			if why, unread := f.Unread[t]; unread {
				o.NotMade = fmt.Sprintf("%s could not be read: %s", t, why)
				break
			}
		}
		if o.NotMade == "" {
			o.Findings = c.Look(f)
			for i := range o.Findings {
				o.Findings[i].Check = c.Name
			}
		}
		r.Outcomes = append(r.Outcomes, o)
	}
	return r
}

// Errors counts the findings that are errors.
func (r *Report) Errors() (n int) {
	for _, o := range r.Outcomes {
		for _, x := range o.Findings {
			if x.Severity == Error {
				n++
			}
		}
	}
	return n
}

// wrong is one error, with what to do; warn one warning.
func wrong(remedy, what string, args ...any) []Finding {
	return []Finding{{Severity: Error, What: fmt.Sprintf(what, args...), Remedy: remedy}}
}

func warn(remedy, what string, args ...any) []Finding {
	return []Finding{{Severity: Warning, What: fmt.Sprintf(what, args...), Remedy: remedy}}
}
