package words

import (
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"strings"
)

// width is the widest line that Go files and documents may have; a tab counts as four columns.
const width = 120

var (
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	directive = regexp.MustCompile(`^\s*// ?(?:go:|\+kubebuilder:|\+optional|nolint)`)
	reference = regexp.MustCompile(`https?://\S+`)
)

// checkGo checks the words of comments, string literals and identifiers, and the width of lines.
func checkGo(g *glossary, path string, text []byte) (found []finding) {
	if generated.Match(text) {
		return nil
	}
	files := token.NewFileSet()
	file := files.AddFile(path, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	raw := map[int]bool{} // lines inside a raw string
	var comment []string  // adjacent line comments, so that a phrase is found across lines
	first, last := 0, -1
	flush := func() {
		found = append(found, at(path, first, g.prose(strings.Join(comment, " ")))...)
		comment = nil
	}
	for {
		pos, tok, literal := s.Scan()
		line := file.Line(pos)
		if tok == token.COMMENT && !directive.MatchString(literal) {
			if len(comment) > 0 && line != last+1 {
				flush()
			}
			if len(comment) == 0 {
				first = line
			}
			comment, last = append(comment, quoted.ReplaceAllString(strings.TrimPrefix(literal, "//"), "")), line
			continue
		}
		if len(comment) > 0 && line > last {
			flush()
		}
		switch tok {
		case token.EOF:
			flush()
			return append(found, wideLines(path, text, raw)...)
		case token.IDENT:
			found = append(found, at(path, line, g.identifier(literal))...)
		case token.STRING:
			for i := range strings.Count(literal, "\n") {
				raw[line+i], raw[line+i+1] = true, true
			}
			found = append(found, at(path, line, g.prose(literal))...)
		}
	}
}

// wideLines finds lines over the width, unless they belong to a raw string, are a directive or contain a URL.
func wideLines(path string, text []byte, except map[int]bool) (found []finding) {
	for i, line := range strings.Split(string(text), "\n") {
		columns := columnsOf(line)
		if columns > width && !except[i+1] && !directive.MatchString(line) && !reference.MatchString(line) {
			found = append(found, finding{path, i + 1, fmt.Sprintf("%d columns: make fmt breaks code", columns)})
		}
	}
	return found
}

func columnsOf(line string) int {
	return len([]rune(line)) + 3*strings.Count(line, "\t")
}
