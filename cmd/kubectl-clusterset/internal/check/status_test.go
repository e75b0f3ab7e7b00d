package check_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// shown is what status prints.
func shown(s *snapshot.Snapshot, wide bool) (status.Report, string) {
	w := check.See(s, nil)
	r := status.Examine(w, check.Run(w))
	var out strings.Builder
	status.Print(&out, &r, wide, w.Now())
	return r, out.String()
}

func TestAHealthyClusterSetIsShown(t *testing.T) {
	_, got := shown(healthy(t), false)
	const want = `ClusterSet blue: 2 members, 1 name, 0 errors, 0 warnings

MEMBERS
  CLUSTER   STATE   EXPORTS   SEEN     FROM HERE   DNS       VERSION   KUBERNETES
  east      live    1         1s ago   -           answers   v0.1.0    -            this cluster
  west      live    1         1s ago   -           -         -         -

NAMES
  NAME       TYPE           EXPORTED BY (ready endpoints)   CONFLICTS   IMPORTED HERE
  web.shop   ClusterSetIP   east (1), west (2)                          yes

In cluster east: 1 export, 1 import with 1 IP; its agent last saw the hub 1s ago
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestNamesWithProblemsComeFirst, and not all are shown.
func TestNamesWithProblemsComeFirst(t *testing.T) {
	s := healthy(t)
	s.Hub.Records = nil // so that endpoints of the others are not known
	for i := range 40 {
		for _, rec := range s.Member.Records[:2] {
			other := *rec.DeepCopy()
			other.Spec.ServiceName = fmt.Sprintf("a%02d", i)
			other.Name = other.Spec.ServiceName + ".shop." + other.Spec.ClusterID
			s.Member.Records = append(s.Member.Records, other)
		}
	}
	s.Member.Slices[1] = slice("west", 0, 2)
	r, got := shown(s, false)
	if r.Names[0].Name != "web" || !strings.Contains(got, "west (0 of 2)") || !strings.Contains(got,
		"  and 21 more: -o wide\n") {
		t.Errorf("%s", got)
	}
	if _, wide := shown(s, true); !strings.Contains(wide, "a39.shop") {
		t.Errorf("%s", wide)
	}
}

func TestV6PoolsAndBlocksAreShown(t *testing.T) {
	s := healthy(t)
	set := &s.Hub.Sets[0]
	set.Spec.VIPs.Mode = hubv1alpha1.VIPModePreferred
	set.Spec.VIPs.Blocks = hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}
	set.Spec.VIPs.Pools = []string{"10.200.0.0/22", "fd00:c5::/48"}
	for _, b := range [][2]string{{"east", "10.200.0.0/24"}, {"east", "fd00:c5::/112"}, {"west", "10.200.1.0/24"},
		{"west", "fd00:c5::1:0/112"}} {
		set.Status.Blocks = append(set.Status.Blocks, hubv1alpha1.Block{ClusterID: b[0], CIDR: b[1]})
	}
	r, got := shown(s, false)
	const want = `
POOLS (mode preferred)
  POOL            BLOCKS OF   GRANTED   FREE
  10.200.0.0/22   /24         2         2
  fd00:c5::/48    /112        2         over a million

BLOCKS
  CLUSTER   BLOCKS
  east      10.200.0.0/24, fd00:c5::/112
  west      10.200.1.0/24, fd00:c5::1:0/112
`
	if len(r.Findings) > 0 || !strings.Contains(got, want) {
		t.Errorf("%v\n%s\nwant\n%s", r.Findings, got, want)
	}
}

// TestADualStackPodIsOneEndpoint, also on the hub, which has a group of endpoints for each family.
func TestADualStackPodIsOneEndpoint(t *testing.T) {
	s := healthy(t)
	s.Member = nil
	s.Hub.Records[1].Spec.Endpoints = []hubv1alpha1.EndpointGroup{
		{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: make([]hubv1alpha1.Endpoint, 2)},
		{AddressType: discoveryv1.AddressTypeIPv6, Endpoints: make([]hubv1alpha1.Endpoint, 2)},
	}
	if r, got := shown(s, false); r.Members[1].Endpoints != 2 || !strings.Contains(got, "west (2)") {
		t.Error(got)
	}
}

// TestNothingIsShownOfWhatWasNotRead, but why. What nobody named, and what is not there, has not failed.
func TestNothingIsShownOfWhatWasNotRead(t *testing.T) {
	s := healthy(t)
	s.Member.Imports = nil
	s.Unread = map[snapshot.Part]snapshot.Lack{
		snapshot.Imports: {Why: "timeout"}, snapshot.Ranges: {Why: "listing servicecidrs failed"},
		snapshot.HubAdmin: {Why: snapshot.NotNamed}, snapshot.Corefile: {Why: snapshot.NoCoreDNS},
	}
	_, got := shown(s, false)
	const want = "\n? reading servicecidrs failed: listing servicecidrs failed\n" +
		"? reading serviceimports failed: timeout\n"
	if !strings.Contains(got, want) || strings.Count(got, "?") != 2 || strings.Contains(got, "IMPORTED HERE") ||
		!strings.Contains(got, "\nIn cluster east: 1 export, imports not known; ") {
		t.Error(got)
	}
	asked := check.See(s, &web)
	r := explain.Explain(asked, check.Run(asked))
	var out strings.Builder
	if explain.Print(&out, &r, false, now); !strings.Contains(out.String(), want) {
		t.Error(out.String())
	}
}

// TestAHubThatWasNotReadIsShown by a finding, or else by a note. Nothing names the hub of a cluster that is no member.
func TestAHubThatWasNotReadIsShown(t *testing.T) {
	stop := func(m *snapshot.Member) {
		m.Agent.Status.AvailableReplicas, m.Leases[0] = 0, lease(facts.AgentLease, time.Hour)
	}
	for name, of := range map[string]struct {
		plant func(m *snapshot.Member)
		named bool
		says  string
	}{
		"a member": {func(*snapshot.Member) {}, true, "x reading the hub failed, so members are not shown: timeout"},
		"credentials of its own": {func(m *snapshot.Member) {
			m.Agent.Spec.Template.Spec.Containers[0].Args = []string{"agent", "--hub-kubeconfig=/vault/hub"}
		}, false, "? reading the hub failed: timeout"},
		"a stopped agent, and a hub that is named": {stop, true, "x reading the hub failed, so members are not shown"},
		"a stopped agent":                          {stop, false, "x reading the hub failed, so members are not shown"},
		"not a member": {func(m *snapshot.Member) { m.Properties, m.Agent = nil, nil }, true,
			"? reading the hub failed: timeout"},
		"not a member, of no hub": {func(m *snapshot.Member) { m.Properties, m.Agent = nil, nil }, false, ""},
	} {
		s := healthy(t)
		s.Hub, s.HubNamed, s.Unread[snapshot.OfHub] = nil, of.named, snapshot.Lack{Why: "timeout"}
		of.plant(s.Member)
		_, got := shown(s, false)
		if !strings.Contains(got, of.says) || strings.Contains(got, "? reading the hub") != (of.says[:min(1,
			len(of.says))] == "?") {
			t.Errorf("%s: want %q\n%s", name, of.says, got)
		}
	}
}

// TestTheDNSColumnShowsWhatIsNow: no Pod of DNS runs, or the agent said before it stopped that DNS answers.
func TestTheDNSColumnShowsWhatIsNow(t *testing.T) {
	for want, plant := range map[string]func(s *snapshot.Snapshot){
		"answers":   func(*snapshot.Snapshot) {},
		"fails":     func(s *snapshot.Snapshot) { s.Member.DNS.Deployment.Status.AvailableReplicas = 0 },
		"installed": func(s *snapshot.Snapshot) { silent(s, "east") },
	} {
		s := healthy(t)
		plant(s)
		if r, got := shown(s, false); r.Here.DNS != want {
			t.Errorf("%q, want %q\n%s", r.Here.DNS, want, got)
		}
	}
}

// TestTheStateOfAMemberIsOneWord: whether it has joined, renews its Lease, and says that it is ready.
func TestTheStateOfAMemberIsOneWord(t *testing.T) {
	for want, of := range map[string][3]metav1.ConditionStatus{"joining": {"False", "Unknown", "Unknown"},
		"not live": {"True", "Unknown", "False"}, "not ready": {"True", "True", "False"},
		"live": {"True", "True", "Unknown"}} {
		s := healthy(t)
		says := append(s.Hub.Profiles[1].Status.Conditions, condition("MemberReady", "", "NotServed", "no DNS"))
		for i, status := range of {
			says[i].Status = status
		}
		s.Hub.Profiles[1].Status.Conditions = says
		if _, got := shown(s, false); !strings.Contains(strings.Join(strings.Fields(got), " "), " west "+want+" 1 ") {
			t.Errorf("no %q\n%s", want, got)
		}
	}
}

// TestF4WhetherMembersAnswerIsShown, or what else is known of them here.
func TestF4WhetherMembersAnswerIsShown(t *testing.T) {
	for state, want := range map[reach.State]string{
		reach.Answers: "reached", reach.Serving: "serving", reach.Silent: "silent", reach.Unreachable: "unreachable",
		reach.Unknown: "-",
	} {
		s := healthy(t)
		reach.Member{State: state, Since: now}.Write(&s.Member.Leases[2], 1200*time.Microsecond)
		_, got := shown(s, false)
		row := regexp.MustCompile(`(?m)^  west .*$`).FindString(got)
		if !slices.Contains(strings.Fields(row), want) {
			t.Errorf("%v: %q, want %q", state, row, want)
		}
	}
}

// TestExportsToSomeClustersAreShown, and count in conflicts only where they are imported.
func TestExportsToSomeClustersAreShown(t *testing.T) {
	for to, conflicts := range map[string]int{"": 1, "cluster=north": 0, "cluster=east": 1, "region=eu": 0} {
		s := healthy(t)
		s.Member.Records[1].Spec.Type, s.Member.Records[1].Spec.ExportTo = mcsv1beta1.Headless, to
		s.Member.Records[0].Spec.ExportTo = "cluster=north"
		r, got := shown(s, false)
		west := regexp.MustCompile(`west( \([^)]*\))?`).FindAllString(got, -1)
		if len(r.Names) != 1 || r.Names[0].Conflicts != conflicts ||
			!strings.Contains(got, "east (1, to cluster=north)") ||
			(to != "") != strings.Contains(strings.Join(west, " "), "to "+to) {
			t.Errorf("west exports to %q: %+v\n%s", to, r.Names, got)
		}
	}
}

// TestAnExportWithoutACopyHasTheHubsNumbers, also if another cluster's is imported.
func TestAnExportWithoutACopyHasTheHubsNumbers(t *testing.T) {
	s := healthy(t)
	s.Member.Records, s.Member.Slices = s.Member.Records[:1], s.Member.Slices[:1]
	s.Hub.Records[1].Spec.Endpoints = []hubv1alpha1.EndpointGroup{
		{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: make([]hubv1alpha1.Endpoint, 3)}}
	r, got := shown(s, false)
	if !strings.Contains(got, "east (1), west (3)") || len(r.Findings) > 0 {
		t.Error(got)
	}
}

// TestTheTypeIsThatOfTheImport, not of an older export to others.
func TestTheTypeIsThatOfTheImport(t *testing.T) {
	s := healthy(t)
	s.Member.Records[1] = record("west", 30)
	s.Member.Records[1].Spec.Type, s.Member.Records[1].Spec.ExportTo = mcsv1beta1.Headless, "cluster=north"
	if r, got := shown(s, false); r.Names[0].Type != "ClusterSetIP" {
		t.Error(got)
	}
}

// TestF5NamesForClientsOutside are shown, and the column is not there without any.
func TestF5NamesForClientsOutside(t *testing.T) {
	s := healthy(t)
	if _, got := shown(s, false); strings.Contains(got, "OUTSIDE") {
		t.Errorf("%s", got)
	}
	s.Member.Records[0].Spec.External = &hubv1alpha1.ExternalAddresses{IPs: []string{"192.0.2.1"}}
	_, got := shown(s, false)
	if !regexp.MustCompile(`IMPORTED HERE +FOR CLIENTS OUTSIDE\n.*web\.shop .* east\n`).MatchString(got) {
		t.Errorf("%s", got)
	}
}
