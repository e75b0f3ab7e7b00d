// Package corefile reads a Corefile as far as is needed to tell which plugins see a question for a zone. It knows no plugin, and reads no
// file: what import names and is not in the text stays unknown, and is listed.
package corefile

import (
	"fmt"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// Corefile is the content.
type Corefile struct {
	Blocks  []Block
	Unknown []string // what import names that is not in the text
}

// Block is one server block.
type Block struct {
	Keys    []Key
	Plugins []Line
}

// Key is an address of a server block.
type Key struct {
	Zone string // lower case, without a dot at the end; "" is the root
	Port string
}

// Line is one line, with what stands in braces behind it.
type Line struct {
	Words []string
	Body  []Line
}

// Name is the first word: of a plugin, or of an option.
func (l *Line) Name() string { return l.Words[0] }

// Args are the others.
func (l *Line) Args() []string { return l.Words[1:] }

// Option is the line of that name in the body, nil if there is none.
func (l *Line) Option(name string) *Line {
	for i := range l.Body {
		if l.Body[i].Name() == name {
			return &l.Body[i]
		}
	}
	return nil
}

// Parse reads text.
func Parse(text string) (*Corefile, error) {
	lines := split(text)
	tree, rest, err := nest(lines, 0)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("Corefile line %d: a closing brace too many", rest[0].number)
	}
	snippets := map[string][]Line{}
	c := &Corefile{}
	for _, l := range tree {
		if name, ok := strings.CutPrefix(l.Name(), "("); ok && strings.HasSuffix(name, ")") {
			snippets[strings.TrimSuffix(name, ")")] = l.Body
			continue
		}
		if l.Name() == "import" {
			c.Unknown = append(c.Unknown, l.Args()...)
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
	return c, nil
}

// expand puts snippets in the place of their imports.
func (c *Corefile) expand(body []Line, snippets map[string][]Line, depth int) (out []Line) {
	for _, l := range body {
		l.Body = c.expand(l.Body, snippets, depth)
		if l.Name() != "import" || len(l.Words) < 2 {
			out = append(out, l)
			continue
		}
		if known, ok := snippets[l.Words[1]]; ok && depth < 10 {
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

// split gives the words of each line.
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

// nest builds the tree until the closing brace of this level, behind which rest begins.
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

// key takes [SCHEME://]ZONE[:PORT] apart.
func key(s string) Key {
	if _, after, ok := strings.Cut(s, "://"); ok {
		s = after
	}
	k := Key{Zone: s, Port: "53"}
	if i := strings.LastIndex(s, ":"); i >= 0 {
		k.Zone, k.Port = s[:i], s[i+1:]
	}
	k.Zone = Normal(k.Zone)
	return k
}

// Normal is a zone in lower case, without a dot at its end.
func Normal(zone string) string { return strings.TrimSuffix(strings.ToLower(zone), ".") }

// Covers tells whether zone is at or below above, both normal.
func Covers(above, zone string) bool {
	return above == "" || zone == above || strings.HasSuffix(zone, "."+above)
}

// For is the block that answers questions for a zone: the most specific one, as CoreDNS has it. port is the one that clients ask; if no
// block listens there, any will do. nil if there is none.
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

// All are the lines of a plugin in the block.
func (b *Block) All(plugin string) (out []*Line) {
	for i := range b.Plugins {
		if b.Plugins[i].Name() == plugin {
			out = append(out, &b.Plugins[i])
		}
	}
	return out
}
