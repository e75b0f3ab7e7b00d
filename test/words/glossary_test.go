package words

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// term is one row of the glossary's first table.
type term struct {
	say         string
	avoid       []string
	identifiers bool
}

// glossary finds the words of its terms.
type glossary struct {
	phrases     *regexp.Regexp
	say         map[string]string // by excluded word or phrase, in lower case
	identifiers map[string]string // the same, for the words that no identifier may contain
}

var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	inflection = `(?:s|d|es|ed|ing)?`
)

// readGlossary reads the rows between the heading "Words that the check finds" and the next heading.
func readGlossary(t *testing.T, path string) *glossary {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## Words that the check finds\n")
	if !found {
		t.Fatalf("%s has no section of words", path)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	var terms []term
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if len(cells) != 4 || strings.HasPrefix(cells[0], "Say") || strings.HasPrefix(cells[0], "---") {
			continue
		}
		row := term{say: cells[0], identifiers: cells[2] == "yes"}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			row.avoid = append(row.avoid, strings.ToLower(m[1]))
		}
		if len(row.avoid) == 0 {
			t.Fatalf("%s: the row %q excludes no word", path, line)
		}
		terms = append(terms, row)
	}
	if len(terms) < 20 {
		t.Fatalf("%s: found only %d rows", path, len(terms))
	}
	return compile(terms)
}

func compile(terms []term) *glossary {
	g := &glossary{say: map[string]string{}, identifiers: map[string]string{}}
	var all []string
	for _, row := range terms {
		for _, word := range row.avoid {
			g.say[word] = row.say
			if row.identifiers {
				g.identifiers[word] = row.say
			}
			all = append(all, strings.ReplaceAll(regexp.QuoteMeta(word), " ", `\s+`))
		}
	}
	g.phrases = regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)` + inflection + `\b`)
	return g
}

// prose returns a finding for every excluded word in a text.
func (g *glossary) prose(text string) (found []string) {
	for _, m := range g.phrases.FindAllStringSubmatch(text, -1) {
		word := strings.ToLower(strings.Join(strings.Fields(m[1]), " "))
		found = append(found, fmt.Sprintf("%q: say %q", m[0], g.say[word]))
	}
	return found
}

var part = regexp.MustCompile(`[A-Z]+[a-z]*|[a-z]+`)

// identifier returns a finding for every excluded word that is a part of name.
func (g *glossary) identifier(name string) (found []string) {
	for _, p := range part.FindAllString(name, -1) {
		for _, form := range stems(strings.ToLower(p)) {
			if say, is := g.identifiers[form]; is {
				found = append(found, fmt.Sprintf("identifier %s: say %q", name, say))
				break
			}
		}
	}
	return found
}

// stems returns word and what remains without its ending.
func stems(word string) []string {
	all := []string{word}
	for _, ending := range []string{"s", "d", "es", "ed", "ing"} {
		if stem, is := strings.CutSuffix(word, ending); is {
			all = append(all, stem)
		}
	}
	return all
}
