package members

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestID7TheMembershipSaysWhatIsWrong: a cluster goes from a hub that does not answer to a member that lacks nothing,
// and at each step Ready has the one cause. What is deleted comes back, and a right that is gone is named.
func TestID7TheMembershipSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	j := joiningSet(t)
	r := j.r
	var rcode atomic.Int32
	rcode.Store(dns.RcodeNameError)
	listener, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if m.Rcode = int(rcode.Load()); m.Rcode == dns.RcodeSuccess {
			m.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT,
				Class: dns.ClassINET}, Txt: []string{"1.1.0"}}}
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })

	credentials := func(member string) []byte {
		t.Helper()
		path, err := j.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, "mcs-"+member, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := credentials("p") // there is no other member yet
	used := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(used, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	nowhere, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range nowhere.Clusters {
		c.Server = "https://127.0.0.1:9" // nobody listens
	}
	if err := clientcmd.WriteToFile(*nowhere, used); err != nil {
		t.Fatal(err)
	}
	agent := j.agentWith(t, j.local, used, "r", lab.HubNamespace, "--dns-server="+listener.LocalAddr().String())
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "NoAnswer", "https://127.0.0.1:9", "refused")
	r.wantMembership(t, "CredentialsValid", metav1.ConditionUnknown, "HubUnknown")

	write(text)
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "NotJoined", "checks.md#notjoined")
	r.wantMembership(t, "HubReachable", metav1.ConditionTrue, "Answers")

	j.claim(t, "r")
	write(credentials("r"))
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "NotServed", "clusterset.local")
	r.wantMembership(t, "Admitted", metav1.ConditionTrue, "Member")
	rcode.Store(dns.RcodeSuccess)
	r.wantMembership(t, "Ready", metav1.ConditionTrue, "AllWell")
	eventually(t, "the hub has it", func() error {
		p := &inventoryv1alpha1.ClusterProfile{}
		err := j.hub.Get(t.Context(), client.ObjectKey{Namespace: lab.HubNamespace, Name: "r"}, p)
		if err == nil && !meta.IsStatusConditionTrue(p.Status.Conditions, inventoryv1alpha1.ConditionMemberReady) {
			err = fmt.Errorf("%+v", p.Status.Conditions)
		}
		return err
	})
	out, err := r.Cluster.Kubectl(t.Context(), "", "get", "membership")
	fields := strings.Join(strings.Fields(out), " ")
	want := "NAME SET ID READY HUB DNS REPORTED AGE clusterset " + lab.HubNamespace + " r True True True "
	if err != nil || !strings.HasPrefix(fields, want) {
		t.Errorf("%s, %v; want %s", fields, err, want)
	}

	m := &hubv1alpha1.Membership{ObjectMeta: objectMeta(hubv1alpha1.MembershipName)}
	if err := r.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.wantMembership(t, "Ready", metav1.ConditionTrue, "AllWell")

	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := r.Cluster.Kubectl(t.Context(), input, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const agentRole = "clusterset-dns:agent" // and its binding
	binding := kubectl("", "get", "clusterrolebinding", agentRole, "-o", "yaml")
	kubectl("", "delete", "clusterrolebinding", agentRole)
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "RightsMissingHere", "list/watch serviceexports")
	kubectl(binding, "create", "-f", "-")
	r.wantMembership(t, "Ready", metav1.ConditionTrue, "AllWell")

	const imports = "serviceimports.multicluster.x-k8s.io"
	crd := kubectl("", "get", "crd", imports, "-o", "yaml")
	kubectl("", "delete", "crd", imports)
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "KindsMissing", "ServiceImport")
	kubectl(crd, "create", "-f", "-")
	r.wantMembership(t, "Ready", metav1.ConditionTrue, "AllWell")

	// The same of an agent that starts: its controllers wait for a list that does not come.
	agent.Kill()
	role := kubectl("", "get", "clusterrole", agentRole, "-o", "yaml")
	kubectl(strings.Replace(role, "- endpointslices\n", "- nothing\n", 1), "replace", "-f", "-")
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "RightsMissingHere", "list/watch", "endpointslices")
	if agent.Ready() {
		t.Error("an agent without a list of EndpointSlices is ready")
	}
	agent.Kill()
	kubectl("", "delete", "clusterrolebinding", agentRole)
	kubectl("", "patch", "membership", hubv1alpha1.MembershipName, "--subresource=status", "--type=merge",
		`-p={"status":{"conditions":[]}}`)
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wantMembership(t, "Ready", metav1.ConditionFalse, "RightsMissingHere", "list/watch serviceexports")
	eventually(t, "nobody makes a second one", func() error {
		m := &hubv1alpha1.Membership{ObjectMeta: objectMeta("another")}
		if err := r.Create(t.Context(), m); err == nil || !strings.Contains(err.Error(), "has the name clusterset") {
			return errors.Join(errors.New("it was taken"), err)
		}
		return nil
	})
}
