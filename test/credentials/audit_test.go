package credentials

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// request is one of the hub's audit log.
type request struct {
	RequestReceivedTimestamp time.Time
	StageTimestamp           time.Time
	Verb                     string
	RequestURI               string
	User                     struct {
		Username string
		Extra    map[string][]string
	}
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// writes are verbs.
var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

// audit is the hub's log since then, in the order of time.
func (e *environment) audit(t *testing.T, since time.Time) []request {
	t.Helper()
	all, err := lab.ReadAudit[request](e.planes["hub"])
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(r request) bool { return !r.StageTimestamp.After(since) })
	slices.SortStableFunc(all, func(a, b request) int { return a.StageTimestamp.Compare(b.StageTimestamp) })
	return all
}

func (r *request) write() bool { return slices.Contains(writes, r.Verb) }

func (r *request) of(cluster string) bool {
	return r.User.Username == "system:serviceaccount:clusterset:mcs-"+cluster
}

// failed reports whether it is a member's write that failed, or anybody's request who was not known. One that came upon
// a
// newer version of the object is how optimistic concurrency works, and is done again at once.
func (r *request) failed() bool {
	code := r.ResponseStatus.Code
	return code == http.StatusUnauthorized ||
		code >= 400 && code != http.StatusConflict && r.write() && (r.of("east") || r.of("west"))
}

// token is the id of the one that it was made with.
func (r *request) token() string {
	id := strings.Join(r.User.Extra["authentication.kubernetes.io/credential-id"], " ")
	return strings.TrimPrefix(id, "JTI=")
}

func (r *request) String() string {
	return fmt.Sprintf(
		"%s %s %s by %q: %d %s",
		r.StageTimestamp.Format(time.TimeOnly),
		r.Verb,
		r.RequestURI,
		r.User.Username,
		r.ResponseStatus.Code,
		r.ResponseStatus.Message,
	)
}
