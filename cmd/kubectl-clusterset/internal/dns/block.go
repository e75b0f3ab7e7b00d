package dns

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Zone is the one that every cluster of a clusterset answers.
const Zone = "clusterset.local"

const zone = Zone

// Our block, in both modes, and the lines around it.
const (
	begin        = "# BEGIN clusterset-dns: kubectl clusterset dns uninstall removes this block\n"
	end          = "# END clusterset-dns\n"
	answerBlock  = "clusterset.local:%s {\n    errors\n    ready\n    prometheus :9153\n    multicluster\n}\n"
	forwardBlock = "clusterset.local:%s {\n    errors\n    cache {\n        success 9984 5\n" +
		"        denial 9984 1\n    }\n    forward . %s\n}\n"
)

// The option of the plugin kubernetes that leaves imported slices out, which would add PTR names to cluster.local. The
// plugin refuses !=. The mark tells our line from one that the user wrote, which stays.
const (
	hideOption = "labels endpointslice.kubernetes.io/managed-by notin (" + kube.Manager + ")"
	hideMark   = " # BY clusterset-dns"
)

var (
	kubernetesBlock = regexp.MustCompile(`(?m)^[ \t]*kubernetes[ \t][^{}#\n]*\{[ \t]*\n[^{}]*`)
	// The option multicluster answers from imported slices, and labels are the user's.
	notHidden = regexp.MustCompile(`(?m)^[ \t]*(labels|multicluster)\b`)
	hidden    = regexp.MustCompile(`(?m)^[ \t]*` + regexp.QuoteMeta(hideOption+hideMark) + `\n`)
)

// hideImported returns the Corefile with our option as the first one of each block kubernetes that has no labels.
func hideImported(text string) string {
	return kubernetesBlock.ReplaceAllStringFunc(text, func(block string) string {
		line, options, _ := strings.Cut(block, "\n")
		if notHidden.MatchString(options) {
			return block
		}
		indent := options[:len(options)-len(strings.TrimLeft(options, " \t"))]
		return line + "\n" + indent + hideOption + hideMark + "\n" + options
	})
}

// unhideImported returns a Corefile without what hideImported added.
func unhideImported(text string) string { return hidden.ReplaceAllString(text, "") }

// anyBlock reports whether a Corefile that parses has such a server block.
func anyBlock(text string, is func(corefile.Block) bool) bool {
	c, err := corefile.Parse(text)
	return err == nil && slices.ContainsFunc(c.Blocks, is)
}

// showsImported reports whether the plugin kubernetes answers PTR from imported slices.
func showsImported(text string) bool {
	return anyBlock(text, func(b corefile.Block) bool {
		return slices.ContainsFunc(b.All("kubernetes"), func(l *corefile.Line) bool {
			return l.Option("multicluster") == nil && !slices.Contains(l.Values("labels"), "("+kube.Manager+")")
		})
	})
}

// withBlock returns the Corefile with our block at its end, in place of an earlier one. If another block answers the
// zone with our plugin, it adds none. If another block serves the zone differently, it fails.
//
// The block stays where it is if nothing changes. With --replace, a block that the user extended stays while it answers
// the zone.
func withBlock(text, block string) (string, error) {
	if strings.Contains(text, begin+block+end) {
		return text, nil
	}
	address, _, _ := strings.Cut(block, "{")
	answers := strings.Contains(block, "multicluster")
	if answers && hasOurBlock(text) && answersZone(text, anyKey) && strings.Contains(text, address) {
		return text, nil
	}
	text = withoutBlock(text)
	c, err := corefile.Parse(text)
	if err != nil {
		return "", err
	}
	if twice := c.Twice(); twice != "" {
		return "", fmt.Errorf("two server blocks of the Corefile are for %s, and CoreDNS does not apply it", twice)
	}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		served := b.Stanza("multicluster", zone) != nil
		if served && answers {
			return text, nil
		}
		if forZone(*b) || served {
			return "", errors.New("the Corefile has a server block or a line multicluster for " + zone +
				" that this command did not add")
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + begin + block + end, nil
}

// withoutBlock returns a Corefile without our block, as it was before but for a missing line break at its end.
func withoutBlock(text string) string {
	before, rest, found := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return text
	}
	return before + after
}

// answersZone reports whether a line multicluster of a Corefile answers the zone, in a block with such a key.
func answersZone(text string, is func(corefile.Key) bool) bool {
	return anyBlock(text, func(b corefile.Block) bool {
		return b.Stanza("multicluster", zone) != nil && slices.ContainsFunc(b.Keys, is)
	})
}

// hasOurPlugin reports whether a server block has one of our plugins: a stock CoreDNS refuses those, for any zone.
func hasOurPlugin(b corefile.Block) bool {
	return len(b.All("multicluster"))+len(b.All("multicluster_external")) > 0
}

func anyKey(corefile.Key) bool { return true }

// plain53 reports whether a key is of plain DNS at port 53, where our Deployment listens.
func plain53(k corefile.Key) bool { return k.Scheme == "" && k.Port == "53" }

// servesZone reports whether a Corefile has a server block for the zone.
func servesZone(text string) bool { return anyBlock(text, forZone) }

func forZone(b corefile.Block) bool {
	return slices.ContainsFunc(b.Keys, func(k corefile.Key) bool { return k.Zone == zone })
}

// sentTo returns the servers to which a Corefile forwards the zone.
func sentTo(text string) []string {
	if c, err := corefile.Parse(text); err == nil {
		if b := c.For(zone, port(text)); b != nil {
			return b.SentOn(zone)
		}
	}
	return nil
}

// hasOurBlock reports whether a text has a block between our lines.
func hasOurBlock(text string) bool { return withoutBlock(text) != text }

// port returns the port of the root zone's block. A Service may map port 53 to another one.
func port(text string) string {
	if c, err := corefile.Parse(text); err == nil {
		for _, b := range c.Blocks {
			for _, k := range b.Keys {
				if k.Zone == "" && k.Scheme == "" {
					return k.Port
				}
			}
		}
	}
	return "53"
}

// domain returns the cluster's own domain.
func domain(text string) string {
	c, err := corefile.Parse(text)
	if err != nil {
		c = &corefile.Corefile{}
	}
	return c.ClusterDomain()
}

// reloads reports whether CoreDNS applies a changed Corefile by itself.
func reloads(text string) bool {
	c, err := corefile.Parse(text)
	return err != nil || slices.ContainsFunc(c.Blocks, func(b corefile.Block) bool { return len(b.All("reload")) > 0 })
}
