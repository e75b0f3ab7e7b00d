package grants

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// request is one of an API server's audit log, as far as authorization goes.
type request struct {
	cluster                          string
	at                               time.Time
	user                             string
	verb, group, resource, namespace string // resource with its subresource
	name                             string
	code                             int
	refused                          bool // by the authorizer; what admission refuses was allowed here
	reason                           string
	denied                           string // by an admission policy, with its message
}

// event is as much of audit.k8s.io/v1 as that takes.
type event struct {
	RequestReceivedTimestamp time.Time
	Verb                     string
	RequestURI               string
	User                     struct{ Username string }
	ImpersonatedUser         *struct{}
	ObjectRef                struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct {
		Code    int
		Message string
	}
	Annotations map[string]string
}

// readAudit reads a log in the order of time. What an admin does as somebody else is not that one's request.
func readAudit(cluster string, cp *lab.ControlPlane) (out []request, err error) {
	events, err := lab.ReadAudit[event](cp)
	for _, e := range events {
		if e.ImpersonatedUser != nil {
			continue
		}
		r := request{
			cluster:   cluster,
			at:        e.RequestReceivedTimestamp,
			user:      e.User.Username,
			verb:      e.Verb,
			group:     e.ObjectRef.APIGroup,
			resource:  e.ObjectRef.Resource,
			namespace: e.ObjectRef.Namespace,
			name:      e.ObjectRef.Name,
			code:      e.ResponseStatus.Code,
			refused:   e.Annotations["authorization.k8s.io/decision"] == "forbid",
			reason:    e.Annotations["authorization.k8s.io/reason"],
		}
		if strings.Contains(e.ResponseStatus.Message, "ValidatingAdmissionPolicy '") {
			r.denied = e.ResponseStatus.Message
		}
		if e.ObjectRef.Subresource != "" {
			r.resource += "/" + e.ObjectRef.Subresource
		}
		if r.resource == "" {
			r.resource, _, _ = strings.Cut(e.RequestURI, "?")
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b request) int { return a.at.Compare(b.at) })
	return out, err
}

func (r request) String() string {
	return fmt.Sprintf(
		"%s: %s: %s %s in %q, name %q: %d %s%s",
		r.cluster,
		r.user,
		r.verb,
		dotted(r.resource, r.group),
		r.namespace,
		r.name,
		r.code,
		r.reason,
		r.denied,
	)
}

func dotted(resource, group string) string {
	if group == "" {
		return resource
	}
	return resource + "." + group
}
