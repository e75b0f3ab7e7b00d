package corefile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
)

const text = `# a comment {
(common) {
    errors
    cache 30 {
        disable success clusterset.local # not "here"
    }
}
import custom/*.server
.:53 dns://example.org:53 {
    import common
    multicluster Clusterset.Local. {
        ttl 5
    }
    import custom/*.override
}
clusterset.local:5353, other.local:53 {
    whoami
}
`

func parse(t *testing.T, text string) *corefile.Corefile {
	t.Helper()
	c, err := corefile.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSnippetsAreExpandedAndFilesListed(t *testing.T) {
	c := parse(t, text)
	if len(c.Blocks) != 2 || !slices.Equal(c.Unknown, []string{"custom/*.server", "custom/*.override"}) {
		t.Fatalf("%+v", c)
	}
	b := c.For("clusterset.local", "53")
	if b == nil || len(b.All("errors")) != 1 || len(b.All("multicluster")) != 1 {
		t.Fatalf("%+v", b)
	}
	if l := b.All("cache")[0].Option("disable"); !slices.Equal(l.Args(), []string{"success", "clusterset.local"}) {
		t.Errorf("%v", l.Words)
	}
}

func TestTheMostSpecificBlockOfThePortAnswers(t *testing.T) {
	c := parse(t, text)
	for _, x := range []struct{ zone, port, plugin string }{
		{"clusterset.local", "53", "multicluster"}, {"a.clusterset.local.", "5353", "whoami"},
		{"other.local", "53", "whoami"},
		{"another.local", "53", "multicluster"}, {"other.local", "99", "whoami"},
	} {
		if b := c.For(x.zone, x.port); b == nil || len(b.All(x.plugin)) != 1 {
			t.Errorf("%+v: %+v", x, b)
		}
	}
	if b := parse(t, "example.org {\nwhoami\n}\n").For("clusterset.local", "53"); b != nil {
		t.Errorf("%+v", b)
	}
}

func TestAZoneAndPortOfTwoBlocksIsFound(t *testing.T) {
	for text, want := range map[string]string{
		".:53 {\n}\ncluster.local:53 {\n}\n":                      "",
		".:53 {\n}\n.:5353 {\n}\n":                                "",
		".:53 {\nerrors\n}\n. {\nerrors\n}\n":                     ".:53",
		"a.local b.local {\n}\nB.local.:53 {\n}\n":                "b.local.:53",
		". {\nbind 10.0.0.1\n}\n. {\nbind 10.0.0.2\n}\n":          "",
		". {\nview a {\nexpr true\n}\n}\n. {\nwhoami\n}\n":        "",
		"(x) {\nbind lo\n}\n. {\nimport x\n}\n. {\nimport x\n}\n": "",
	} {
		if got := parse(t, text).Twice(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestBracesMustFit(t *testing.T) {
	for _, text := range []string{". {\nerrors\n", ". {\nerrors\n}\n}\n"} {
		if _, err := corefile.Parse(text); err == nil || !strings.Contains(err.Error(), "closing brace") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestBlocksAreReadAsCaddyReadsThem: where a brace may stand, how keys go on, what a scheme's port is, and blocks
// that are imported.
func TestBlocksAreReadAsCaddyReadsThem(t *testing.T) {
	for name, x := range map[string]struct{ text, zone, port, plugin string }{
		"a brace on a line of its own": {".:53\n{\nwhoami\n}\n", "clusterset.local", "53", "whoami"},
		"keys over lines": {"example.org,\nclusterset.local:53 {\nwhoami\n}\n. {\nerrors\n}\n",
			"example.org", "53", "whoami"},
		"keys over lines, and a brace": {"example.org,\nclusterset.local,\nexample.net\n{\nwhoami\n}\n",
			"clusterset.local", "53", "whoami"},
		"an imported block": {"(all) {\nclusterset.local {\nwhoami\n}\n}\nimport all\n. {\nerrors\n}\n",
			"clusterset.local", "53", "whoami"},
		"tls is not what pods ask": {"tls://clusterset.local {\nerrors\n}\n. {\nwhoami\n}\n", "clusterset.local",
			"53", "whoami"},
		"tls": {"tls://. {\nwhoami\n}\n. {\nerrors\n}\n", "clusterset.local", "853", "whoami"},
		"https": {"https://. {\nwhoami\n}\n. {\nerrors\n}\n", "clusterset.local", "443",
			"whoami"},
		"grpc": {"grpc://. {\nwhoami\n}\n. {\nerrors\n}\n", "clusterset.local", "443",
			"whoami"},
		"tls with a port": {"tls://.:53 {\nwhoami\n}\n", "clusterset.local", "53", "whoami"},
	} {
		c := parse(t, x.text)
		if b := c.For(x.zone, x.port); b == nil || len(b.All(x.plugin)) != 1 || len(c.Unknown) > 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if l := parse(t, ". {\ncache 30\n{\nsuccess 1\n}\n}\n").Blocks[0].All("cache")[0]; l.Option("success") == nil {
		t.Errorf("a plugin's brace on a line of its own: %+v", l)
	}
	if c := parse(t, "(a) {\nimport a\n}\nimport a\n"); len(c.Unknown) != 1 {
		t.Errorf("a circle: %+v", c)
	}
}

func TestSentOnIsWhatIsGivenAwayOnPurpose(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a block of its own": {"clusterset.local:53 {\n forward . 10.0.0.1 10.0.0.2\n}",
			[]string{"10.0.0.1", "10.0.0.2"}},
		"a block for its zone": {"Clusterset.Local. {\n forward clusterset.local 10.0.0.1\n}", []string{"10.0.0.1"}},
		"a block above":        {"local {\n forward . 10.0.0.1\n}", []string{"10.0.0.1"}},
		"a line of its own": {". {\n forward clusterset.local. 10.0.0.1\n forward . /etc/resolv.conf\n}",
			[]string{"10.0.0.1"}},
		"everything":            {". {\n forward . /etc/resolv.conf\n}", nil},
		"everything first":      {". {\n forward . /etc/resolv.conf\n forward clusterset.local 10.0.0.1\n}", nil},
		"everything but this":   {"local {\n forward . 10.0.0.1 {\n except clusterset.local\n}\n}", nil},
		"everything but others": {"local {\n forward . 10.0.0.1 {\n except other.local\n}\n}", []string{"10.0.0.1"}},
		"another zone":          {". {\n forward cluster.local 10.0.0.1\n}", nil},
		"nothing":               {"clusterset.local {\n whoami\n}", nil},
	} {
		if got := parse(t, c.text+"\n").For("clusterset.local", "53").SentOn("clusterset.local"); !slices.Equal(got,
			c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestTheClusterDomainIsThatOfKubernetes, or of its server block.
func TestTheClusterDomainIsThatOfKubernetes(t *testing.T) {
	for text, want := range map[string]string{
		".:53 {\n kubernetes Corp.Example. in-addr.arpa\n}":                       "corp.example",
		".:53 {\n errors\n}\n10.in-addr.arpa corp.example:53 {\n kubernetes\n}":   "corp.example",
		".:53 {\n kubernetes in-addr.arpa ip6.arpa corp.example {\n ttl 30\n}\n}": "corp.example",
		".:53 {\n kubernetes in-addr.arpa\n}":                                     "cluster.local",
		".:53 {\n errors\n}":                                                      "cluster.local",
	} {
		if got := parse(t, text).ClusterDomain(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
