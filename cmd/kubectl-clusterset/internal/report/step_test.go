package report

import "testing"

func TestStepsNameTheClustersThatTheUserNamed(t *testing.T) {
	all := Flags{Kubeconfig: "my file", Context: "east", HubContext: "hub"}
	jane := Flags{Context: "east", Others: Flag("as", "jane") + Flag("as-group", "a team")}
	const join = "kubectl clusterset join --hub-context=HUB"
	for _, c := range []struct {
		flags Flags
		step  Step
		want  string
	}{
		{Flags{}, Here(join), join},
		{Flags{}, Step{}, ""},
		{Flags{}, AtHub("kubectl -n a get pods"), "on the hub: kubectl -n a get pods"},
		{Flags{Context: "east"}, Here("kubectl -n a get pods"), "kubectl --context=east -n a get pods"},
		{Flags{Context: "east"}, Here(join), "kubectl clusterset --context=east join --hub-context=HUB"},
		{all, Here(join), "kubectl clusterset --kubeconfig='my file' --context=east join --hub-context=hub"},
		{all, AtHub("kubectl -n a get pods"), "kubectl --kubeconfig='my file' --context=hub -n a get pods"},
		{all.OfHub(), Here(join + " --context MEMBER"), "kubectl clusterset join --hub-context=hub --context MEMBER"},
		{all, Here("kubectl clusterset doctor").In(Subject).On("west"), "in cluster west: kubectl clusterset doctor"},
		{all, Here("kubectl -n {namespace} get pods {name}").On("web.shop"),
			"kubectl --kubeconfig='my file' --context=east -n shop get pods web"},
		{Flags{HubContext: "hub", HubNamespace: "blue"}, Here(join),
			"kubectl clusterset join --hub-context=hub --hub-namespace=blue"},
		{Flags{HubNamespace: "blue"}, Here(join),
			"kubectl clusterset join --hub-context=HUB --hub-namespace=blue"},
		{jane, Here("kubectl get pods"), "kubectl --context=east --as=jane --as-group='a team' get pods"},
		{jane, AtHub("kubectl get pods"), "on the hub: kubectl get pods"},
		{Flags{HubOthers: Flag("as", "jane")}, AtHub("kubectl get pods"), "kubectl --as=jane get pods"},
		{Flags{Kubeconfig: "it's"}, Here("kubectl get pods"), `kubectl --kubeconfig='it'\''s' get pods`},
		{Flags{Context: "east"}, Here("talosctl version"), "talosctl version"},
	} {
		if got := c.flags.Step(c.step); got != c.want {
			t.Errorf("%+v: %q\nis  %q\nnot %q", c.flags, c.step, got, c.want)
		}
	}
}
