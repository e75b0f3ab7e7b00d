package clusterset

import (
	"testing"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestS5WhichNamespacesMayBeUsed, by names that are alike and by lists that are missing, empty or at odds.
func TestS5WhichNamespacesMayBeUsed(t *testing.T) {
	type list = []string
	for _, c := range []struct {
		name        string
		allow, deny list
		may, mayNot list
	}{
		{"no lists", nil, nil, list{"default", "shop", "kube", "mykube-system", "clusterset"},
			list{"kube-system", "kube-", "kube-public", "clusterset-system"}},
		{"nothing is denied", nil, list{}, list{"kube-system", "shop"}, nil},
		{"a name", nil, list{"bank"}, list{"kube-system", "bank-2", "my-bank", "ban"}, list{"bank"}},
		{"a prefix", nil, list{"bank*"}, list{"my-bank", "ban"}, list{"bank", "bank-2", "banking"}},
		{"a suffix", nil, list{"*-prod"}, list{"prod", "prod-1"}, list{"shop-prod", "-prod"}},
		{"all", nil, list{"*"}, nil, list{"shop", "kube-system"}},
		{"only these", list{"shop-*", "bank"}, nil, list{"shop-a", "bank"}, list{"shop", "bank-a", "default"}},
		{"deny prevails", list{"shop-*"}, list{"*-internal"}, list{"shop-a"}, list{"shop-internal", "a-internal"}},
		{"an allowed name stays denied", list{"kube-system"}, nil, nil, list{"kube-system", "shop"}},
		{"two patterns", nil, list{"a", "b*"}, list{"aa", "cb"}, list{"a", "b", "bb"}},
		{"a * within is no pattern", nil, list{"a*b", "*a*"}, list{"ab", "axb", "xax", "a"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := hubv1alpha1.NamespaceRules{Allow: c.allow, Deny: c.deny}
			for want, names := range map[bool]list{true: c.may, false: c.mayNot} {
				for _, name := range names {
					if MayUse(rules, name) != want {
						t.Errorf("%s: may use is %v", name, !want)
					}
				}
			}
		})
	}
}
