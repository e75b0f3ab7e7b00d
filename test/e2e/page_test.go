package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// step is a block of commands on a page, and what the page shows as their output.
type step struct {
	line     int // of the first command
	heading  string
	commands string
	output   string // with … for anything; "" if the page shows none
}

// steps are the blocks of a page that a reader types: fenced and marked sh. A block marked text right after one is its
// output. A block marked "sh unproven" is for readers only, and its reason has to stand on the page.
func steps(page string) (all []step, unproven int, err error) {
	var block []string
	fence, heading, begin, output := "", "", 0, false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case fence == "" && strings.HasPrefix(line, "~~~ "):
			fence, block, begin = strings.TrimSpace(line[4:]), nil, i+2
			if fence == "text" && !output {
				return nil, 0, fmt.Errorf("line %d: there is no command before this output", i+1)
			}
		case fence == "":
			if strings.HasPrefix(line, "#") {
				heading = strings.TrimLeft(line, "# ")
			}
			if strings.HasPrefix(line, "    ") && strings.TrimSpace(line) != "" && !isItem(page, i) {
				return nil, 0, fmt.Errorf("line %d: an indented block, which no test runs: use ~~~ sh", i+1)
			}
			output = output && strings.TrimSpace(line) == ""
		case line == "~~~":
			text := strings.Join(block, "\n")
			switch fence {
			case "sh":
				all = append(all, step{line: begin, heading: heading, commands: text})
			case "sh unproven":
				unproven++
			case "text":
				all[len(all)-1].output = text
			}
			output, fence = fence == "sh", ""
		default:
			block = append(block, line)
		}
	}
	if fence != "" {
		return nil, 0, fmt.Errorf("line %d: the block does not end", begin)
	}
	return all, unproven, nil
}

// isItem reports whether a line that begins with spaces continues an item of a list.
func isItem(page string, i int) bool {
	lines := strings.Split(page, "\n")
	for i > 0 && strings.TrimSpace(lines[i]) != "" {
		i--
		if regexp.MustCompile(`^\s*([-*]|\d+\.) `).MatchString(lines[i]) {
			return true
		}
	}
	return false
}

// shows reports whether output is what the page shows.
func (s step) shows(output string) bool {
	pattern := regexp.QuoteMeta(strings.TrimSpace(s.output))
	pattern = regexp.MustCompile(`[ \t]+`).ReplaceAllString(pattern, `[ \t]+`)
	pattern = strings.ReplaceAll(pattern, "…", `.*?`)
	lines := regexp.MustCompile(`[ \t]+\n`).ReplaceAllString(output, "\n")
	return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(strings.TrimSpace(lines))
}

func TestStepsOfAPage(t *testing.T) {
	page := "# Title\n\nText.\n\n## First\n\n~~~ sh\na\nb\n~~~\n\n~~~ text\nx …\n~~~\n\n~~~ corefile\n.:53\n~~~\n\n" +
		"~~~ sh unproven\nc\n~~~\n\n- item\n    goes on\n\n## Second\n\n~~~ sh\nd\n~~~\n"
	all, unproven, err := steps(page)
	if err != nil || unproven != 1 || len(all) != 2 {
		t.Fatalf("%+v, %d unproven, %v", all, unproven, err)
	}
	if want := (step{line: 8, heading: "First", commands: "a\nb", output: "x …"}); all[0] != want {
		t.Errorf("the first step is %+v, want %+v", all[0], want)
	}
	if want := (step{line: 30, heading: "Second", commands: "d"}); all[1] != want {
		t.Errorf("the second step is %+v, want %+v", all[1], want)
	}
	for _, wrong := range []string{
		"~~~ sh\na\n", "    a\n", "~~~ text\na\n~~~\n", "~~~ sh\na\n~~~\n\nb\n\n~~~ text\n~~~\n",
	} {
		if _, _, err := steps(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestOutputIsComparedWithThePage(t *testing.T) {
	for _, c := range []struct {
		page, output string
		right        bool
	}{
		{"a", "a\n", true},
		{"a", "b\n", false},
		{"a", "a\nb\n", false},
		{"NAME  AGE\na     …", "NAME    AGE  \na       3s\n", true},
		{"web-…", "web-5f8-x\n", true},
		{"…\nb", "a\na\nb\n", true},
		{"a.c", "abc\n", false},
	} {
		if (step{output: c.page}).shows(c.output) != c.right {
			t.Errorf("%q beside %q: want %v", c.output, c.page, c.right)
		}
	}
}
