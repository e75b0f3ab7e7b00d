package report

import (
	"errors"
	"testing"
)

func TestRemediesNameTheClustersThatTheUserNamed(t *testing.T) {
	all := Flags{Kubeconfig: "my file", Context: "east", HubContext: "hub"}
	for _, c := range []struct {
		flags        Flags
		remedy, want string
	}{
		{Flags{}, "kubectl clusterset join", "kubectl clusterset join"},
		{Flags{}, "on the hub: kubectl -n a get pods; kubectl clusterset init --hub-context=HUB",
			"on the hub: kubectl -n a get pods; kubectl clusterset init --hub-context=HUB"},
		{Flags{Context: "east"}, "kubectl clusterset doctor; kubectl -n shop get pods, see https://a.example/b",
			"kubectl clusterset --context=east doctor; kubectl --context=east -n shop get pods, see https://a.example/b"},
		{Flags{Context: "east"}, "kubectl clusterset leave west --evict --hub-context HUB",
			"kubectl clusterset --context=east leave west --evict --hub-context HUB"},
		{all, "kubectl clusterset leave west --evict --hub-context HUB",
			"kubectl clusterset --kubeconfig='my file' --context=east leave west --evict --hub-context=hub"},
		{all, "kubectl clusterset init --hub-context=HUB",
			"kubectl clusterset --kubeconfig='my file' --context=east init --hub-context=hub"},
		{all, "on the hub: kubectl -n a get pods; without pods: kubectl clusterset init --hub-context=HUB",
			"on the hub: kubectl --kubeconfig='my file' --context=hub -n a get pods; without pods: kubectl " +
				"clusterset --kubeconfig='my file' --context=hub init --hub-context=hub"},
		{Flags{Context: "east"}, "in cluster west: kubectl -n shop get pods",
			"in cluster west: kubectl -n shop get pods"},
		{Flags{Context: "east"}, "in that cluster: kubectl clusterset doctor",
			"in that cluster: kubectl clusterset doctor"},
		{Flags{Context: "east", Others: Flag("as", "jane")}, "ask a cluster admin to run: kubectl clusterset doctor",
			"ask a cluster admin to run: kubectl clusterset doctor"},
		{Flags{Context: "east"}, "use the same version in all clusters, and of kubectl clusterset; see that",
			"use the same version in all clusters, and of kubectl clusterset; see that"},
		{Flags{HubContext: "hub", HubNamespace: "blue"}, "kubectl clusterset init --hub-context=HUB",
			"kubectl clusterset init --hub-context=hub --hub-namespace=blue"},
		{Flags{HubNamespace: "blue"}, "kubectl clusterset leave west --evict --hub-context=HUB, or doctor",
			"kubectl clusterset leave west --evict --hub-context=HUB --hub-namespace=blue, or doctor"},
		{Flags{Context: "east"}, "executable kubectl failed with exit code 1",
			"executable kubectl failed with exit code 1"},
		{Flags{Context: "missing"}, "kubectl config get-contexts", "kubectl config get-contexts"},
		{Flags{Context: "east", Others: Flag("as", "jane") + Flag("as-group", "a team")}, "kubectl clusterset doctor" +
			"; kubectl get pods; on the hub: kubectl get pods", "kubectl clusterset --context=east --as=jane " +
			"--as-group='a team' doctor; kubectl --context=east --as=jane --as-group='a team' get pods; on the hub: " +
			"kubectl get pods"},
		{Flags{HubOthers: Flag("as", "jane")}, "on the hub: kubectl get pods",
			"on the hub: kubectl --as=jane get pods"},
		{Flags{Kubeconfig: "it's"}, "kubectl get pods", `kubectl --kubeconfig='it'\''s' get pods`},
	} {
		if got := c.flags.Remedy(c.remedy); got != c.want {
			t.Errorf("%+v: %q\nis  %q\nnot %q", c.flags, c.remedy, got, c.want)
		}
	}
	cause := errors.New("not found: kubectl get pods")
	err := Flags{Context: "east"}.Error(WithRemedy(cause, "kubectl get pods"))
	if want := "not found: kubectl --context=east get pods\n  → kubectl --context=east get pods"; err.Error() != want {
		t.Errorf("%q, not %q", err, want)
	}
	if !errors.Is(err, cause) || (Flags{}).Error(nil) != nil {
		t.Error("the cause is lost, or an error is made of none")
	}
}
