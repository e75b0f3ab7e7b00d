package dns

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Report is what dns status prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Distribution    platform.Platform `json:"distribution"`
	Mode            Mode              `json:"mode,omitempty"` // "" if it is not installed
	Image           string            `json:"image,omitempty"`
	Original        string            `json:"originalImage,omitempty"`
	Pods            []PodReport       `json:"pods"`
	Findings        []report.Finding  `json:"findings"`
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
	out := &Report{TypeMeta: report.Kind("DNSStatus"), Distribution: platform.Of(&s.Objects), Mode: s.Mode(),
		Image: s.running(), Original: s.original(), Pods: []PodReport{}, Findings: []report.Finding{}}
	install := doctor.InstallDNS
	if release != "" || out.Image != "" { // the default image, or the one that is installed
		install = "kubectl clusterset dns install"
	}
	lost := false
	find := func(f report.Finding) { out.Findings = append(out.Findings, f) }
	if out.Mode == "" && (answered(s.Corefile()) || serves(s.Corefile())) {
		find(report.Warningf("kubectl clusterset doctor",
			"this command did not add what the Corefile says of %s", zone))
	} else if out.Mode == "" {
		find(report.Warningf(install, "our CoreDNS is not installed by this command"))
	} else if out.Image == "" {
		find(report.Errorf(install, "the cluster's CoreDNS has the image %s again, which lacks our plugin",
			s.container().Image))
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
	if out.Mode != "" {
		all := []*appsv1.Deployment{s.Beside}
		if s.Config != nil { // else a cloud may have replaced kube-dns
			all = append(all, s.Deployment)
		}
		for _, d := range all {
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
	namespace, selector, port := s.servers()
	if selector == nil || !r.Wait {
		return out, nil
	}
	pods, err := r.pods(ctx, namespace, selector)
	if err != nil {
		return nil, r.Failed(err, "listing Pods")
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !ready(&p) })
	problems := make([]string, len(pods))
	atOnce(len(pods), func(i int) { problems[i] = r.askPod(ctx, &pods[i], port, domain(s.Corefile()), true) })
	answering := ""
	for i, problem := range problems {
		out.Pods = append(out.Pods, PodReport{Name: pods[i].Name, Problem: problem})
		if problem != "" && out.Mode != "" {
			find(report.Errorf(s.lookAt(&pods[i]), "Pod %s %s", pods[i].Name, problem))
		}
		if problem == "" {
			answering = pods[i].Name
		}
	}
	if lost && answering != "" {
		find(report.Errorf(fmt.Sprintf(doctor.RefusedAt, namespace, answering), doctor.Earlier))
	}
	if len(out.Pods) == 0 && out.Mode != "" && len(out.Findings) == 0 && out.Distribution.Forward != platform.ByHand {
		find(report.Errorf("kubectl -n "+namespace+" get pods", "no Pod of the cluster's DNS is ready"))
	}
	return out, nil
}

// atOnce calls do for each index, ten at a time.
func atOnce(n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(10)
	for i := range n {
		group.Go(func() error { do(i); return nil })
	}
	_ = group.Wait() // there are no errors
}

// ready reports whether a Pod should answer. A Pod that crashes, or whose node is lost, is in the phase Running, too.
func ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// lookAt is where to look if a Pod of the cluster's DNS does not answer the zone.
func (s *State) lookAt(p *corev1.Pod) string {
	look := fmt.Sprintf(doctor.RefusedAt, p.Namespace, p.Name)
	if s.Beside != nil {
		look = "kubectl -n " + besideNamespace + " get pods; " + look
	}
	return look
}

// Unanswered asks every ready Pod of the cluster's DNS for the zone. It returns how many it asked, and those that do
// not answer. It fails if none could be asked.
func (r *Runner) Unanswered(ctx context.Context, s *State) (asked int, out []doctor.Unanswered, err error) {
	namespace, selector, port := s.servers()
	if selector == nil { // DNS runs elsewhere
		return 0, nil, nil
	}
	pods, err := r.pods(ctx, namespace, selector)
	if err != nil {
		return 0, nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !ready(&p) })
	why, errs := make([]string, len(pods)), make([]error, len(pods))
	atOnce(len(pods), func(i int) {
		version, err := r.Ask(ctx, &pods[i], port, versionQuestion())
		switch {
		case err != nil:
			why[i], errs[i] = err.Error(), fmt.Errorf("pod %s: %w", pods[i].Name, err)
		case len(version.Answer) == 0:
			why[i] = refused(version)
		}
	})
	if !slices.Contains(errs, nil) && len(pods) > 0 {
		return 0, nil, errs[0]
	}
	for i := range pods {
		if why[i] != "" {
			look := s.lookAt(&pods[i])
			if s.Mode() == "" && !answered(s.Imported()) {
				look = doctor.InstallDNS
			}
			out = append(out, doctor.Unanswered{Pod: pods[i].Name, Why: why[i], Remedy: look})
		}
	}
	return len(pods), out, nil
}

// PrintReport writes a report for people.
func PrintReport(out io.Writer, r *Report) {
	installed := "not installed"
	switch {
	case r.Image != "":
		installed = fmt.Sprintf("installed with --%s, image %s", r.Mode, r.Image)
	case r.Mode != "":
		installed = fmt.Sprintf("installed with --%s, without its image", r.Mode)
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
