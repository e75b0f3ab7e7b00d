// Package report is what status, explain and doctor have in common: findings, the head of their JSON, and how they
// are printed for people. It reads no cluster.
package report

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion is the version of the reports that -o json and -o yaml print.
const APIVersion = "cli.clusterset-dns.io/v1alpha1"

// Kind returns the head of a report.
func Kind(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: APIVersion, Kind: kind} }

// Severity says how bad a finding is.
type Severity string

// An error keeps something from working. A warning does not yet.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity `json:"severity"`
	Check    string   `json:"check,omitempty"`  // which one found it
	About    []string `json:"about,omitempty"`  // names or clusters
	What     string   `json:"what"`             //
	Remedy   string   `json:"remedy,omitempty"` // a command
	URL      string   `json:"url,omitempty"`    // of what it means, and what else to do
}

// Errorf returns a finding that keeps something from working.
func Errorf(remedy, what string, args ...any) Finding {
	return Finding{Severity: Error, What: fmt.Sprintf(what, args...), Remedy: remedy}
}

// Warningf returns a finding that keeps nothing from working yet.
func Warningf(remedy, what string, args ...any) Finding {
	return Finding{Severity: Warning, What: fmt.Sprintf(what, args...), Remedy: remedy}
}

// Tally is how many findings of each severity there are.
type Tally struct{ Errors, Warnings int }

func Count(findings []Finding) (t Tally) {
	for _, f := range findings {
		if f.Severity == Error {
			t.Errors++
		} else {
			t.Warnings++
		}
	}
	return t
}

// ExitCode is the exit status of doctor and verify: 0 without findings, 1 with warnings only, 2 with errors.
func (t Tally) ExitCode() int {
	switch {
	case t.Errors > 0:
		return 2
	case t.Warnings > 0:
		return 1
	}
	return 0
}

// Text returns the numbers, for this output.
func (t Tally) Text(out io.Writer) string {
	errors, warnings := Number(t.Errors, "error"), Number(t.Warnings, "warning")
	if t.Errors > 0 {
		errors = Paint(out, "x", errors)
	}
	if t.Warnings > 0 {
		warnings = Paint(out, "!", warnings)
	}
	return errors + ", " + warnings
}

// Print writes findings with their remedies, errors first.
func Print(out io.Writer, findings []Finding) {
	for _, s := range []struct {
		severity Severity
		mark     string
	}{{Error, "x"}, {Warning, "!"}} {
		for _, f := range findings {
			if f.Severity != s.severity {
				continue
			}
			Note(out, s.mark, f.What, f.Remedy)
			if f.URL != "" {
				fmt.Fprintf(out, "    %s\n", f.URL)
			}
		}
	}
}

// WithRemedy returns err with what to do about it.
func WithRemedy(err error, remedy string) error { return fmt.Errorf("%w\n"+arrow+"%s", err, remedy) }

// Fail returns an error as fmt.Errorf does, with what to do about it.
func Fail(remedy, what string, args ...any) error {
	return WithRemedy(fmt.Errorf(what, args...), remedy)
}

// arrow begins the line of an error's remedy.
const arrow = "  → "
