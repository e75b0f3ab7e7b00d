// Package versions compares the versions of this program, the agent, CoreDNS and the hub's controller. It knows them
// by the tags of their images, and reads no cluster.
package versions

import (
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Component is one program.
type Component struct {
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"`    // of Image; "" if not installed, being rolled out, or not read
	Kubernetes string `json:"kubernetes,omitempty"` // version of its cluster
	Image      string `json:"image,omitempty"`
	Skew       string `json:"skew,omitempty"` // how its version differs from the client's
	Problem    string `json:"problem,omitempty"`
}

// Report is what the command version prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Client          Component   `json:"client"`
	Components      []Component `json:"components"`
}

// New returns a report with the versions of components, by their images, and how they differ from the client's.
func New(client string, components []Component) Report {
	for i := range components {
		c := &components[i]
		if c.Image != "" && c.Problem == "" {
			c.Version = tag(c.Image)
		}
		c.Skew = skew(client, c.Version)
	}
	return Report{report.Kind("Version"), Component{Name: "client", Version: client}, components}
}

// tag returns the tag of an image, or "unknown" for one without.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[colon+1:]
	}
	return "unknown"
}

// skew returns how another version differs from the client's; "" if both are equal, or one cannot be parsed. Versions
// work together if their minor versions differ by one at most.
func skew(client, other string) string {
	a, err := version.ParseSemantic(client)
	b, err2 := version.ParseSemantic(other)
	if err != nil || err2 != nil || a.EqualTo(b) {
		return ""
	}
	by := int(b.Minor()) - int(a.Minor())
	switch {
	case a.Major() != b.Major():
		return "unsupported: another major version"
	case by > 1 || by < -1:
		return "unsupported: more than one minor version apart"
	case a.LessThan(b):
		return "newer"
	}
	return "older"
}

// Print writes a report for people.
func Print(out io.Writer, r *Report) {
	fmt.Fprintf(out, "Client: %s\n", r.Client.Version)
	var rows [][]string
	for _, c := range r.Components {
		v := c.Version
		if c.Problem != "" {
			if v = "not read"; c.Image != "" {
				v = "being rolled out"
			}
		} else if v == "" {
			v = "not installed"
		}
		rows = append(rows, []string{c.Name, v, c.Kubernetes, c.Skew})
	}
	report.Table(out, "COMPONENTS", []string{"NAME", "VERSION", "KUBERNETES", "SKEW"}, rows)
	for _, c := range r.Components {
		if c.Problem != "" {
			report.Note(out, "?", c.Name+": "+c.Problem, "")
		}
	}
}
