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
		{"clusterset.local", "53", "multicluster"}, {"a.clusterset.local.", "5353", "whoami"}, {"other.local", "53", "whoami"},
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

func TestBracesMustFit(t *testing.T) {
	for _, text := range []string{". {\nerrors\n", ". {\nerrors\n}\n}\n"} {
		if _, err := corefile.Parse(text); err == nil || !strings.Contains(err.Error(), "closing brace") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
