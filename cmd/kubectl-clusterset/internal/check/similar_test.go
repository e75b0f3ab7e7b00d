package check_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
)

func TestNamesThatMayBeMeant(t *testing.T) {
	in := func(ns, name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }
	for _, c := range []struct {
		asked, there types.NamespacedName
		alike        bool
	}{
		{in("shop", "wbe"), web, true},
		{in("shop", "webb"), web, true},
		{in("store", "web"), web, true},
		{web, web, false}, // it is there: nothing else was meant
		{in("shop", "db"), web, false},
		{in("shop", "api"), web, false},
		{in("store", "wbe"), web, false},
		{in("shop", "checkout-v2"), in("shop", "chekout"), false},
		{in("shop", "checkuot"), in("shop", "checkout"), true},
	} {
		if got := check.Similar(c.asked, c.there); got != c.alike {
			t.Errorf("%v for %v: %v", c.asked, c.there, got)
		}
	}
}
