package api

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// table holds the objects of one kind in the order of their names. It is never changed, only replaced: whoever reads
// one has it as it was, and a backup costs nothing.
type table []client.Object

func (t table) find(n types.NamespacedName) (int, bool) {
	return slices.BinarySearchFunc(t, n, func(o client.Object, n types.NamespacedName) int {
		return cmp.Or(cmp.Compare(o.GetNamespace(), n.Namespace), cmp.Compare(o.GetName(), n.Name))
	})
}

// get returns nil where there is none.
func (t table) get(n types.NamespacedName) client.Object {
	if i, ok := t.find(n); ok {
		return t[i]
	}
	return nil
}

func (t table) with(o client.Object) table {
	i, ok := t.find(client.ObjectKeyFromObject(o))
	if !ok {
		return slices.Insert(slices.Clip(t), i, o)
	}
	out := slices.Clone(t)
	out[i] = o
	return out
}

func (t table) without(n types.NamespacedName) table {
	i, ok := t.find(n)
	if !ok {
		return t
	}
	return slices.Concat(t[:i], t[i+1:])
}
