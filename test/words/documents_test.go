package words

import (
	"fmt"
	"regexp"
	"strings"
)

const tooLongSentence = 35

var (
	link     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	bullet   = regexp.MustCompile(`^\s*(?:[-*]|\d+\.|>)\s+`)
	sentence = regexp.MustCompile(`[.!?:][)"*_]*(?:\s+|$)`)
)

// block is a paragraph, an item of a list or a cell of a table.
type block struct {
	line int
	text string
}

// checkDocument checks the words and the width of lines of a document, and the length of its sentences.
func checkDocument(g *glossary, path string, text []byte) (found []finding) {
	exempt := map[int]bool{}
	for _, b := range blocks(string(text), exempt) {
		found = append(found, at(path, b.line, g.prose(quoted.ReplaceAllString(b.text, "")))...)
		for _, s := range sentences(b.text) {
			if n := len(strings.Fields(s)); n > tooLongSentence && !normative(path) {
				found = append(found, finding{path, b.line, fmt.Sprintf("a sentence of %d words: %s", n, s)})
			}
		}
	}
	if generatedPage(path) {
		return found
	}
	return append(found, wideLines(path, text, exempt)...)
}

// generatedPage reports whether a program writes the page, one line to a paragraph.
func generatedPage(path string) bool {
	return strings.HasPrefix(path, "docs/benchmarks") || path == "docs/reliability.md"
}

// normative reports whether path is a specification. Its rules are cited by number and may be long.
func normative(path string) bool {
	return strings.HasPrefix(path, "docs/spec/")
}

// sentences splits a block. Code counts as one word, and a link as its text.
func sentences(text string) []string {
	text = quoted.ReplaceAllString(link.ReplaceAllString(text, "$1"), "code")
	return sentence.Split(text, -1)
}

// blocks returns the prose of a document. Lines of code and of tables, which may be wide, are added to exempt.
func blocks(text string, exempt map[int]bool) (all []block) {
	var current *block
	end := func() { current = nil }
	begin := func(line int, text string) {
		all = append(all, block{line, text})
		current = &all[len(all)-1]
	}
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		number, trimmed := i+1, strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~"):
			fenced, exempt[number] = !fenced, true
			end()
		case fenced || current == nil && (strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")):
			exempt[number] = true
		case strings.HasPrefix(trimmed, "|"):
			exempt[number] = true
			for cell := range strings.SplitSeq(strings.Trim(trimmed, "|"), " | ") {
				begin(number, cell)
			}
			end()
		case trimmed == "":
			end()
		case strings.HasPrefix(line, "#"):
			begin(number, strings.TrimLeft(line, "# "))
			end()
		case current == nil || bullet.MatchString(line):
			begin(number, bullet.ReplaceAllString(line, ""))
		default:
			current.text += " " + trimmed
		}
	}
	return all
}
