package multicluster

import "testing"

func TestTheVersionIsThatOfTheProgram(t *testing.T) {
	t.Cleanup(func() { Version = "" })
	Version = "v1.2.3"
	if got := version(); got != "v1.2.3" {
		t.Errorf("with a version of the program: %q", got)
	}
	Version = ""
	if got := version(); got == "" || got == "v1.2.3" {
		t.Errorf("without a version of the program: %q", got)
	}
}
