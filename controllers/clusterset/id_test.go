package clusterset

import "testing"

// A cluster id may hold a dot: a.b is not b.
func TestRecordOwner(t *testing.T) {
	for _, c := range []struct{ kind, name, want string }{
		{"ServiceExportRecord", "web.shop.east", "east"},
		{"ServiceExportRecord", "web.shop.a.b", "a.b"},
		{"ServiceExportRecord", "web.shop", ""},
		{"EndpointPage", "0.web.shop.east", "east"},
		{"EndpointPage", "12.web.shop.a.b", "a.b"},
		{"EndpointPage", "0.web.shop", ""},
	} {
		if got := RecordOwner(c.kind, c.name); got != c.want {
			t.Errorf("%s %s is of %q, want %q", c.kind, c.name, got, c.want)
		}
	}
}
