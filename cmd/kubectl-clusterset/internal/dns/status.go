package dns

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Report is what dns status prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Distribution    Distribution     `json:"distribution"`
	Mode            Mode             `json:"mode,omitempty"` // "" if it is not installed
	Image           string           `json:"image,omitempty"`
	Original        string           `json:"originalImage,omitempty"`
	Pods            []PodReport      `json:"pods"`
	Findings        []report.Finding `json:"findings"`
}

// PodReport reports whether one Pod of the cluster's DNS answers for the zone.
type PodReport struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"`
}

// Status asks every Pod of the cluster's DNS, and finds what is missing. It writes nothing.
func (r *Runner) Status(ctx context.Context, release string) (*Report, error) {
	s, err := Read(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	out := &Report{TypeMeta: report.Kind("DNSStatus"), Distribution: Detect(s), Mode: s.Mode(), Image: s.running(),
		Original: s.original(), Pods: []PodReport{}, Findings: []report.Finding{}}
	install := doctor.InstallDNS
	if release != "" || out.Image != "" { // the default image, or the one that is installed
		install = "kubectl clusterset dns install"
	}
	lost := false
	find := func(f report.Finding) { out.Findings = append(out.Findings, f) }
	if out.Mode == "" {
		find(report.Warningf(install, "our CoreDNS is not installed by this command"))
	} else if p, err := Install(s, Wanted{Image: out.Image}); err != nil {
		what, remedy, _ := strings.Cut(err.Error(), "\n  → ")
		find(report.Errorf(cmp.Or(remedy, install), "%s", what))
	} else {
		if lost = p.Forward != nil && !answered(s.Corefile()); lost || p.Deployment != nil ||
			p.Forward != nil && out.Mode == Beside {
			find(report.Errorf(install, "the cluster's DNS has lost its configuration for %s", zone))
		}
		for _, n := range p.Notes {
			find(report.Warningf("", "%s", n))
		}
		if release != "" && out.Image != release {
			find(report.Warningf(install, "image %s is not that of this kubectl-clusterset, %s", out.Image, release))
		}
	}
	namespace, selector, port := s.servers()
	if selector == nil || !r.Wait {
		return out, nil
	}
	pods, err := r.pods(ctx, namespace, selector)
	if err != nil {
		return nil, r.Failed(err, "listing Pods")
	}
	if out.Mode != "" {
		for _, d := range []*appsv1.Deployment{s.Deployment, s.Beside} {
			if d == nil {
				continue
			}
			pods, err := r.PodsOf(ctx, d)
			if err != nil {
				return nil, r.Failed(err, "listing Pods")
			}
			if down := facts.Missing(d, pods); down != nil {
				find(*down)
			}
		}
	}
	answering := ""
	for i := range pods {
		if p := &pods[i]; running(p) {
			one := PodReport{Name: p.Name, Problem: r.askPod(ctx, p, port, domain(s.Corefile()), true)}
			if out.Pods = append(out.Pods, one); one.Problem != "" && out.Mode != "" {
				find(report.Errorf(fmt.Sprintf(doctor.RefusedAt, namespace, p.Name), "Pod %s %s", p.Name, one.Problem))
			}
			if one.Problem == "" {
				answering = p.Name
			}
		}
	}
	if lost && answering != "" {
		find(report.Errorf(fmt.Sprintf(doctor.RefusedAt, namespace, answering), doctor.Earlier))
	}
	if len(out.Pods) == 0 && out.Mode != "" && len(out.Findings) == 0 {
		find(report.Errorf("kubectl -n "+namespace+" get pods", "no Pod of the cluster's DNS runs"))
	}
	return out, nil
}

// running reports whether a Pod should answer.
func running(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
}

// Unanswered asks every running Pod of the cluster's DNS for the zone, and returns those that do not answer it. It
// fails if a Pod cannot be asked.
func (r *Runner) Unanswered(ctx context.Context) (out []doctor.Unanswered, err error) {
	s, err := Read(ctx, r.Cluster)
	if err != nil {
		return nil, err
	}
	namespace, selector, port := s.servers()
	if selector == nil { // DNS runs elsewhere
		return nil, nil
	}
	pods, err := r.pods(ctx, namespace, selector)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		p := &pods[i]
		if !running(p) {
			continue
		}
		version, err := r.Ask(ctx, p, port, versionQuestion())
		if err != nil {
			return nil, fmt.Errorf("pod %s: %w", p.Name, err)
		}
		if len(version.Answer) == 0 {
			out = append(out, doctor.Unanswered{Pod: p.Name, Why: refused(version)})
		}
	}
	return out, nil
}

// PrintReport writes a report for people.
func PrintReport(out io.Writer, r *Report) {
	installed := "not installed"
	if r.Mode != "" {
		installed = fmt.Sprintf("installed with --%s, image %s", r.Mode, r.Image)
	}
	fmt.Fprintf(out, "DNS of %s: our CoreDNS is %s: %s\n", r.Distribution.Name, installed, report.Count(r.Findings))
	report.Print(out, r.Findings)
	var rows [][]string
	for _, p := range r.Pods {
		answer := "answers"
		if p.Problem != "" {
			answer = p.Problem
		}
		rows = append(rows, []string{p.Name, answer})
	}
	report.Table(out, "PODS OF THE CLUSTER'S DNS", []string{"NAME", zone}, rows)
}

// Running returns the image of our CoreDNS in a cluster, or "".
func Running(ctx context.Context, c *cluster.Cluster) (string, error) {
	s, err := Read(ctx, c)
	if err != nil {
		return "", err
	}
	return s.running(), nil
}
