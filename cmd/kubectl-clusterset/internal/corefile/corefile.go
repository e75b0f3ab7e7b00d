// Package corefile parses a Corefile as far as needed to see which plugins get a question for a zone. It knows no
// plugin and reads no file: imports that are not in the text are listed as unknown.
package corefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

type Corefile struct {
	Blocks  []Block
	Unknown []string // imports that are not in the text
}

type Block struct {
	Keys    []Key
	Plugins []Line
}

// Key is an address of a server block.
type Key struct {
	Scheme string // such as tls, "" for plain DNS
	Zone   string // lower case, without a dot at the end; "" is the root
	Port   string
}

func (k Key) String() string { return k.Zone + ".:" + k.Port }

// Line is one line with its body in braces.
type Line struct {
	Words []string
	Body  []Line
}

// Name is of a plugin, or of an option.
func (l *Line) Name() string { return l.Words[0] }

func (l *Line) Args() []string { return l.Words[1:] }

// Option is the first line of that name in the body, nil if there is none.
func (l *Line) Option(name string) *Line {
	if all := l.Options(name); len(all) > 0 {
		return all[0]
	}
	return nil
}

func (l *Line) Options(name string) (out []*Line) {
	for i := range l.Body {
		if l.Body[i].Name() == name {
			out = append(out, &l.Body[i])
		}
	}
	return out
}

// Values are the arguments of all lines of that name in the body.
func (l *Line) Values(name string) (out []string) {
	for _, o := range l.Options(name) {
		out = append(out, o.Args()...)
	}
	return out
}

func Parse(text string) (*Corefile, error) {
	lines := split(text)
	tree, rest, err := nest(lines, 0)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("Corefile line %d: a closing brace too many", rest[0].number)
	}
	c := &Corefile{}
	c.blocks(tree, map[string][]Line{}, 0)
	return c, nil
}

// blocks reads the lines outside all braces: server blocks, snippets, and imports of snippets with blocks.
func (c *Corefile) blocks(tree []Line, snippets map[string][]Line, depth int) {
	for _, l := range tree {
		if name, ok := strings.CutPrefix(l.Name(), "("); ok && strings.HasSuffix(name, ")") {
			snippets[strings.TrimSuffix(name, ")")] = l.Body
			continue
		}
		if l.Name() == "import" {
			for _, name := range l.Args() {
				if known, ok := snippets[name]; ok && depth < deepest {
					c.blocks(known, snippets, depth+1)
				} else {
					c.Unknown = append(c.Unknown, name)
				}
			}
			continue
		}
		b := Block{Plugins: c.expand(l.Body, snippets, 0)}
		for _, w := range l.Words {
			if w = strings.Trim(w, ","); w != "" {
				b.Keys = append(b.Keys, key(w))
			}
		}
		c.Blocks = append(c.Blocks, b)
	}
}

// deepest limits nested imports, which may be circular.
const deepest = 10

// expand replaces imports by their snippets.
func (c *Corefile) expand(body []Line, snippets map[string][]Line, depth int) (out []Line) {
	for _, l := range body {
		l.Body = c.expand(l.Body, snippets, depth)
		if l.Name() != "import" || len(l.Words) < 2 {
			out = append(out, l)
			continue
		}
		if known, ok := snippets[l.Words[1]]; ok && depth < deepest {
			out = append(out, c.expand(known, snippets, depth+1)...)
		} else {
			c.Unknown = append(c.Unknown, l.Words[1])
		}
	}
	return out
}

type numbered struct {
	number int
	words  []string
}

func split(text string) (out []numbered) {
	tokens := caddyfile.NewDispenser("Corefile", strings.NewReader(text))
	for tokens.Next() {
		if n := tokens.Line(); len(out) == 0 || out[len(out)-1].number != n {
			out = append(out, numbered{number: n})
		}
		last := &out[len(out)-1]
		last.words = append(last.words, tokens.Val())
	}
	return out
}

// nest builds the tree up to the closing brace of this level; rest follows it.
func nest(lines []numbered, depth int) (out []Line, rest []numbered, err error) {
	for len(lines) > 0 {
		at := lines[0]
		lines = lines[1:]
		if at.words[0] == "}" {
			if depth == 0 {
				return nil, append([]numbered{at}, lines...), nil
			}
			return out, lines, nil
		}
		l := Line{Words: at.words}
		// keys go on in the next line
		for depth == 0 && strings.HasSuffix(l.Words[len(l.Words)-1], ",") && len(lines) > 0 {
			l.Words = append(l.Words, lines[0].words...)
			lines = lines[1:]
		}
		// on a line of its own
		if l.Words[len(l.Words)-1] != "{" && len(lines) > 0 && len(lines[0].words) == 1 && lines[0].words[0] == "{" {
			l.Words = append(l.Words, "{")
			lines = lines[1:]
		}
		if last := len(l.Words) - 1; last > 0 && l.Words[last] == "{" {
			l.Words = l.Words[:last]
			if l.Body, lines, err = nest(lines, depth+1); err != nil {
				return nil, nil, err
			}
		}
		out = append(out, l)
	}
	if depth > 0 {
		return nil, nil, fmt.Errorf("Corefile: a closing brace is missing")
	}
	return out, nil, nil
}

// ports of the schemes that have one of their own.
var ports = map[string]string{"tls": "853", "quic": "853", "https": "443", "https3": "443", "grpc": "443"}

// key parses [SCHEME://]ZONE[:PORT].
func key(s string) Key {
	k := Key{Port: "53"}
	if scheme, after, ok := strings.Cut(s, "://"); ok {
		s = after
		if port, other := ports[strings.ToLower(scheme)]; other {
			k.Scheme, k.Port = strings.ToLower(scheme), port
		}
	}
	k.Zone = s
	if i := strings.LastIndex(s, ":"); i >= 0 {
		k.Zone, k.Port = s[:i], s[i+1:]
	}
	k.Zone = Normal(k.Zone)
	return k
}

// Normal is a zone in lower case, without a dot at its end.
func Normal(zone string) string { return strings.TrimSuffix(strings.ToLower(zone), ".") }

// Covers reports whether zone is at or below above, both normal.
func Covers(above, zone string) bool {
	return above == "" || zone == above || strings.HasSuffix(zone, "."+above)
}

// For is the block that answers questions for a zone: the most specific one, as CoreDNS has it. port is the one that
// clients ask; if no block listens there, any will do. nil if there is none.
func (c *Corefile) For(zone, port string) *Block {
	zone = Normal(zone)
	best, longest := -1, -1
	for _, only := range []string{port, ""} {
		for i := range c.Blocks {
			for _, k := range c.Blocks[i].Keys {
				if (only == "" || k.Port == only) && Covers(k.Zone, zone) && len(k.Zone) > longest {
					best, longest = i, len(k.Zone)
				}
			}
		}
		if best >= 0 {
			return &c.Blocks[best]
		}
	}
	return nil
}

// ClusterDomain is the cluster's own domain: the first zone of the plugin kubernetes that is not a reverse one. If its
// line names none, the zones are those of its server block. The default is Kubernetes'.
func (c *Corefile) ClusterDomain() string {
	for i := range c.Blocks {
		for _, l := range c.Blocks[i].All("kubernetes") {
			zones := slices.Clone(l.Args())
			if len(zones) == 0 {
				for _, k := range c.Blocks[i].Keys {
					zones = append(zones, k.Zone)
				}
			}
			for _, z := range zones {
				if z = Normal(z); z != "" && !Covers("arpa", z) {
					return z
				}
			}
		}
	}
	return "cluster.local"
}

// Twice returns a zone and port of two server blocks, for which CoreDNS refuses the Corefile, or "". Blocks with the
// plugin bind or view may share one.
func (c *Corefile) Twice() string {
	seen := map[Key]bool{}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		if len(b.All("bind"))+len(b.All("view")) > 0 {
			continue
		}
		for _, k := range b.Keys {
			if seen[k] {
				return k.String()
			}
			seen[k] = true
		}
	}
	return ""
}

func (b *Block) All(plugin string) (out []*Line) {
	for i := range b.Plugins {
		if b.Plugins[i].Name() == plugin {
			out = append(out, &b.Plugins[i])
		}
	}
	return out
}

// Stanza is the line of a plugin that serves exactly this zone, which it does where it names none, too; nil if there
// is none.
func (b *Block) Stanza(plugin, zone string) *Line {
	for _, l := range b.All(plugin) {
		if len(l.Args()) == 0 || slices.ContainsFunc(l.Args(), func(z string) bool { return Normal(z) == zone }) {
			return l
		}
	}
	return nil
}

// SentOn are the servers that a zone is given to on purpose: by a forward in a block for the zone or one above it, or
// by a forward of those. A forward of everything in a block for everything takes what nobody here answers.
func (b *Block) SentOn(zone string) []string {
	named := func(above string) bool { return above != "" && Covers(above, zone) }
	of := slices.ContainsFunc(b.Keys, func(k Key) bool { return named(k.Zone) })
	for _, l := range b.All("forward") {
		args := l.Args()
		if len(args) < 2 || !Covers(Normal(args[0]), zone) ||
			slices.ContainsFunc(l.Values("except"), func(z string) bool { return Covers(Normal(z), zone) }) {
			continue
		}
		if of || named(Normal(args[0])) {
			return args[1:]
		}
		return nil // the first that covers it takes it
	}
	return nil
}
