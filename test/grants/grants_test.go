package grants

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// elsewhere are the rights that only clusters of another kind ask for, with the reason.
var elsewhere = map[string]string{
	"member: clusterset-system:clusterset-controller may create " +
		"endpointslices/restricted.discovery.k8s.io": "OpenShift's admission asks for it where an address lies in " +
		"the " +
		"pods' range",
}

// TestRightsAreThoseUsed: in a clusterset's whole life neither RBAC nor an admission policy refuses what a program
// asks for, and none has a right that it does not use.
func TestRightsAreThoseUsed(t *testing.T) {
	s := start(t)
	defer s.wantNothingRefused(t) // also where a step fails of it
	release, renewed := s.lingering(t), s.renewal(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"exports", s.exports}, {"edits", s.edits}, {"refused", s.refused}, {"namespaces", s.namespaces},
		{"declared", s.declared}, {"missing", s.missing}, {"withdrawn", s.withdrawn}, {"inventory", s.inventory},
		{"silence", s.silence}, {"renewed", renewed}, {"ranges", s.ranges}, {"leave", s.leave}, {"pages", s.pages},
		{"evict", s.evict},
		{"release", release},
	} {
		began := time.Now()
		step.run(t)
		t.Logf("%s: %v", step.name, time.Since(began).Round(100*time.Millisecond))
	}
	s.wantAllUsed(t)
}

func (s *set) wantNothingRefused(t *testing.T) {
	all := s.requests(t)
	for _, r := range refused(s.granted(t), all) {
		t.Errorf("refused: %s", r)
	}
	pinned := map[string]int{}
	for _, r := range all {
		switch {
		case strings.HasPrefix(r.user, "system:serviceaccount:") && r.denied != "" && !joining(r):
			t.Errorf("denied: %s", r)
		case r.user == "system:serviceaccount:clusterset-system:clusterset-controller" && r.code/100 == 2:
			pinned[r.verb+" "+r.resource]++
		}
	}
	for _, write := range []string{
		"create namespaces", "create services", "update services", "delete services", "create endpointslices",
		"update endpointslices", "delete endpointslices", "create serviceimports", "update serviceimports",
		"delete serviceimports", "patch serviceimports", "patch serviceimports/status", "create servicecidrs",
		"update servicecidrs", "delete servicecidrs",
	} {
		if pinned[write] == 0 {
			t.Errorf("no agent made the request %q, which the policy clusterset-agent has to allow", write)
		}
	}
}

// joining reports whether an agent asked for membership before its API server knew of the ID that it had just created:
// it asks again until then.
func joining(r request) bool {
	return r.verb == "create" && r.resource == "clusterproperties" &&
		strings.Contains(r.denied, "first.clusterset-dns.io")
}

func (s *set) wantAllUsed(t *testing.T) {
	grants, idle := s.granted(t), map[string]bool{}
	for _, right := range unused(grants, s.requests(t)) {
		idle[right] = true
		if elsewhere[right] == "" {
			t.Errorf("granted and not used: %s", right)
		}
	}
	for right, why := range elsewhere {
		if !idle[right] {
			t.Errorf("%s: is used, or no longer granted, and need not be excused: %s", right, why)
		}
	}
	for _, right := range twice(grants) {
		t.Errorf("granted twice: %s", right)
	}
}

// granted is what the ServiceAccounts of deploy/ hold now, in all clusters.
func (s *set) granted(t *testing.T) (out []grant) {
	t.Helper()
	for name, c := range s.clients {
		of, err := granted(t.Context(), name, c, shipped)
		must(t, err)
		out = append(out, of...)
	}
	return out
}

// shipped tells the ServiceAccounts that deploy/ gives rights to.
func shipped(namespace, name string) bool {
	switch namespace {
	case kube.SystemNamespace:
		return true
	case lab.HubNamespace:
		return strings.HasPrefix(name, clusterset.AccountPrefix)
	}
	return namespace == "kube-system" && name == "coredns"
}

// lingering evicts a member that may still write by somebody's RoleBinding: the hub says so again and again until
// that is gone.
func (s *set) lingering(t *testing.T) (release func(*testing.T)) {
	ctx := t.Context()
	must(t, s.Hub.Apply(ctx, lab.HubMember(s.root, "c")))
	byHand := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: "by-hand"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clusterset-member"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: lab.HubNamespace, Name: clusterset.AccountPrefix + "c"},
		},
	}
	must(t, s.hub.Create(ctx, byHand))
	p, err := s.profile(t, "c")
	must(t, err)
	must(t, s.hub.Delete(ctx, p))
	return func(t *testing.T) {
		told(t, s.hub, lab.HubNamespace, "RightsNotRevoked", "c", 2)
		must(t, s.hub.Delete(ctx, byHand))
		until(
			t,
			"c is evicted",
			func() error { _, err := s.profile(t, "c"); return absent("ClusterProfile c", err) },
		)
	}
}

// renewal has a's agent start with a token that is soon to be renewed, in the Secret.
func (s *set) renewal(t *testing.T) (renewed func(*testing.T)) {
	ctx := t.Context()
	const lifetime = 10 * time.Minute // the API server gives none for less
	first, err := s.Hub.Kubectl(
		ctx,
		"",
		"-n",
		lab.HubNamespace,
		"create",
		"token",
		clusterset.AccountPrefix+"a",
		fmt.Sprintf("--duration=%v", lifetime),
	)
	must(t, err)
	secret := &corev1.Secret{Data: map[string][]byte{"token": []byte(first)}}
	secret.Namespace, secret.Name = kube.SystemNamespace, clusterset.SecretHub
	s.a.create(t, secret)
	s.a.Agent.Terminate()
	must(t, s.a.Agent.Start(ctx))
	return func(t *testing.T) {
		until(t, "the token is renewed", func() error {
			var now corev1.Secret
			err := s.a.Get(ctx, client.ObjectKeyFromObject(secret), &now)
			if err == nil && string(now.Data["token"]) == first {
				return fmt.Errorf("it is the first one still")
			}
			return err
		})
	}
}

// TestEveryRuleNamesItsUse, in a comment above it.
func TestEveryRuleNamesItsUse(t *testing.T) {
	root, err := lab.Root()
	must(t, err)
	rule := regexp.MustCompile(
		`^- (apiGroups|resources|verbs|nonResourceURLs):`,
	) // others' rules, such as policies', stand further in
	rules := map[string]int{}
	must(t, filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		before := ""
		for i, line := range strings.Split(string(text), "\n") {
			if rule.MatchString(line) {
				rules[d.Name()]++
				if !strings.HasPrefix(before, "# ") {
					t.Errorf("%s:%d: a rule without a comment above it: %s", path, i+1, line)
				}
			}
			before = line
		}
		return nil
	}))
	for _, name := range []string{"rbac.yaml", "role.yaml", "member.yaml", "users.yaml", "bare.yaml"} {
		if rules[name] == 0 {
			t.Errorf("%s has no rules: are they written otherwise?", name)
		}
	}
}
