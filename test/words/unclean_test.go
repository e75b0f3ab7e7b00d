package words

// unclean lists the directories that still have findings. The list only shrinks: TestLanguage fails for a directory on
// it that is clean. A blank line stands between any two, so that two authors can each remove one.
var unclean = []string{
	"controllers/agent",

	"test/lab",

	"test/sim",

	"test/sim/api",
}
