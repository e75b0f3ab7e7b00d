package snapshot

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// dns reads what the cluster has for DNS. Who may not read all of it may read the Corefile.
func (r *reader) dns(ctx context.Context, c *cluster.Cluster) error {
	m := r.Snapshot.Member
	s, err := dns.Read(ctx, c)
	var unread error
	if err != nil {
		if s, unread = dns.ReadCorefile(ctx, c); unread != nil {
			r.unread(Corefile, unread)
			return err
		}
	}
	if s.Deployment == nil && s.Operator == nil { // a CoreDNS that nothing shows as the cluster's DNS: kubeadm's name
		s.ConfigKey = "Corefile"
		if s.Config, unread = kube.Get[*corev1.ConfigMap](ctx, c, types.NamespacedName{Namespace: "kube-system",
			Name: "coredns"}); unread != nil {
			r.unread(Corefile, unread)
		}
	}
	if s.Corefile() == "" {
		r.unread(Corefile, errors.New(NoCoreDNS))
	}
	for i := range s.Nodes { // what shows the platform
		n := &s.Nodes[i]
		s.Nodes[i] = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels},
			Status: corev1.NodeStatus{NodeInfo: n.Status.NodeInfo}}
	}
	if s.Deployment != nil {
		m.DNSPods, _ = c.PodsOf(ctx, s.Deployment) // without them a reason is missing
	}
	if s.Beside != nil {
		m.BesidePods, _ = c.PodsOf(ctx, s.Beside)
	}
	m.DNS = *s
	return err
}

// outcome matches the lines by which CoreDNS says what becomes of its Corefile.
var outcome = regexp.MustCompile(`Reloading complete|Restart failed|reload failed|Corefile:\d+ - Error`)

// refusal returns why CoreDNS refuses its Corefile by the last such line of a Pod's log; "" if none of them does, or if
// no Pod waits and the agent says now that the cluster's DNS answers.
func refusal(ctx context.Context, c *cluster.Cluster, s *Snapshot) string {
	m := s.Member
	_, line := m.Plugin()
	answers := meta.IsStatusConditionTrue(m.Membership.Status.Conditions, hubv1alpha1.ConditionDNSAnswers)
	waits := slices.ContainsFunc(m.DNSPods, func(p corev1.Pod) bool { return facts.Waiting(&p) != "" })
	if !waits && (line == nil || answers && !s.AgentStopped()) {
		return ""
	}
	for i := range m.DNSPods {
		if facts.Ended(&m.DNSPods[i]) {
			continue
		}
		text, _ := Log(ctx, c, &m.DNSPods[i], m.DNSPods[i].Spec.Containers[0].Name, false, 200)
		if why := lastOutcome(string(text)); why != "" {
			return why
		}
	}
	return ""
}

// lastOutcome returns why CoreDNS refuses its Corefile, by its log, or "".
func lastOutcome(log string) (last string) {
	for line := range strings.Lines(log) {
		if outcome.MatchString(line) {
			last = strings.TrimSpace(line)
		}
	}
	if strings.Contains(last, "Reloading complete") {
		return ""
	}
	return last
}

// Log returns the last lines of a container's log, of its previous instance if asked.
func Log(ctx context.Context, c *cluster.Cluster, pod *corev1.Pod, container string, previous bool, lines int64) (
	[]byte, error) {
	if c.Config == nil {
		return nil, errors.New("there is no API server")
	}
	api, err := corev1client.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	return api.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, Previous: previous,
		Timestamps: true, TailLines: ptr.To(lines)}).DoRaw(ctx)
}
