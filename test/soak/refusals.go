package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
)

// refusal is a write of one of our programs that a server refuses, as long as it has not taken a later one.
type refusal struct {
	write
	where  string // hub, or a member
	stated bool
	used   bool // the right is used since, or is there
}

func (r *refusal) String() string {
	return fmt.Sprintf("%s: %s: %s", r.where, r.write, r.ResponseStatus.Message)
}

// byRights returns whether RBAC refuses it. Then it may lack a name.
func (r *refusal) byRights() bool {
	return strings.Contains(r.ResponseStatus.Message, fmt.Sprintf("cannot %s resource", r.Verb))
}

// isOf returns whether a write is of what was refused.
func (r *refusal) isOf(where string, o write) bool {
	return r.isLike(where, o) && (r.ObjectRef.Name == o.ObjectRef.Name || r.ObjectRef.Name == "") &&
		(r.Verb == o.Verb || !r.byRights())
}

// isLike returns whether a write is of an object of the same kind, by the same user.
func (r *refusal) isLike(where string, o write) bool {
	return r.where == where && r.User == o.User && r.what() == o.what() &&
		r.ObjectRef.Namespace == o.ObjectRef.Namespace
}

// answered keeps what a server refuses, and forgets what it takes. A right that was lacking and is used since, with
// whatever object, need not be stated until it is lacking again: a server that has just started refuses what it takes a
// second later.
func (w *world) answered(where string, one write) {
	same := func(r *refusal) bool { return r.isOf(where, one) }
	for _, r := range w.refusals {
		switch {
		case r.byRights() && r.isLike(where, one) && r.Verb == one.Verb && one.succeeded():
			r.used = true
		case one.refused() && same(r):
			r.used = false
		}
	}
	if one.refused() && !slices.ContainsFunc(w.refusals, same) {
		r := &refusal{write: one, where: where}
		w.refusals = append(w.refusals, r)
		w.tape.note("refused: %s", r)
	}
	w.refusals = slices.DeleteFunc(w.refusals, func(r *refusal) bool { // who meets a conflict has the right
		return same(r) && (one.succeeded() || r.byRights() && one.ResponseStatus.Code == http.StatusConflict)
	})
}

// refusedNames are the names with a refused record, which is not everywhere what its exporter has.
func (w *world) refusedNames() map[string]bool {
	out := map[string]bool{}
	for _, r := range w.refusals {
		if r.what() == "serviceexportrecords" {
			name, _, _ := strings.Cut(r.ObjectRef.Name, ".")
			out[name] = true
		}
	}
	return out
}

// statement is what a member says in a condition or an Event.
type statement struct {
	in, about string // a member; the name of the object, "" of the Membership
	says      string // type, status and reason
	message   string
}

// statedBy returns whether that is how a refusal must be stated (SPEC U6), with the server's words where they may not
// be those of an earlier one.
func (r *refusal) statedBy(s statement) bool {
	by, atHub := strings.CutPrefix(r.User.Username, peers)
	if !atHub {
		by = r.where
	}
	is := func(begin ...string) bool {
		return s.in == by && slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(s.says, b) })
	}
	words, _, _ := strings.Cut(r.ResponseStatus.Message, "\n")
	worded := strings.Contains(s.message, words[:min(len(words), 80)])
	name, ofRecord, _ := strings.Cut(s.about, ".") // of a Service; and the rest of a record's name
	namespace, _, _ := strings.Cut(ofRecord, ".")
	derived := resolution.DerivedName(namespace, name)
	switch object := r.ObjectRef.Name; {
	case r.byRights(): // four are named, and the others counted
		named := strings.Contains(s.message, r.Verb) && strings.Contains(s.message, r.what())
		return is("Permitted False") && (named || strings.Contains(s.message, " more"))
	case r.what() == "serviceexportrecords" && strings.HasSuffix(object, "."+by):
		return worded && is("Ready False Failed") && strings.HasPrefix(object, s.about+".")
	case r.what() == "serviceexportrecords" && !atHub:
		return worded && is("Held True Refused", "Event RecordRefused") && object == s.about
	case r.ObjectRef.Resource == "endpointslices":
		return is("EndpointsImported False SliceRefused") && strings.HasPrefix(object, derived)
	case r.ObjectRef.Resource == "dnsendpoints":
		return is("Event DNSEndpointRefused") && strings.HasSuffix(object, s.about)
	case slices.Contains([]string{"serviceimports", "services", "namespaces"}, r.ObjectRef.Resource):
		return is("Imported False ImportRefused", "Imported True ChangeRefused") &&
			slices.Contains([]string{name, derived, namespace}, object)
	}
	return false
}

// unstated marks what is stated, and returns the rest.
func unstated(refusals []*refusal, statements []statement) (out []*refusal) {
	for _, r := range refusals {
		if r.stated = r.stated || slices.ContainsFunc(statements, r.statedBy); !r.stated && !r.used {
			out = append(out, r)
		}
	}
	return out
}

// statements are what all members say now.
func (w *world) statements(ctx context.Context) (out []statement, err error) {
	for _, m := range w.members {
		var membership hubv1alpha1.Membership
		var exports mcsv1beta1.ServiceExportList
		var copies hubv1alpha1.ServiceExportRecordList
		events := map[string]*corev1.EventList{ns: {}, kube.SystemNamespace: {}}
		gets := []func() error{
			func() error { return m.Get(ctx, client.ObjectKey{Name: hubv1alpha1.MembershipName}, &membership) },
			func() error { return m.List(ctx, &exports, client.InNamespace(ns)) },
			func() error { return m.List(ctx, &copies, client.InNamespace(kube.SystemNamespace)) },
			func() error { return m.List(ctx, events[ns], client.InNamespace(ns)) },
			func() error {
				return m.List(ctx, events[kube.SystemNamespace], client.InNamespace(kube.SystemNamespace))
			},
		}
		for _, get := range gets {
			if err := insist(ctx, get); err != nil {
				return nil, err
			}
		}
		add := func(about string, conditions []metav1.Condition) {
			for _, c := range conditions {
				says := fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason)
				out = append(out, statement{m.ID, about, says, c.Message})
			}
		}
		add("", membership.Status.Conditions)
		for i := range exports.Items {
			add(exports.Items[i].Name+"."+ns, exports.Items[i].Status.Conditions)
		}
		for i := range copies.Items {
			add(copies.Items[i].Name, copies.Items[i].Status.Conditions)
		}
		for _, list := range events {
			for i := range list.Items {
				e := &list.Items[i]
				out = append(out, statement{m.ID, e.InvolvedObject.Name, "Event " + e.Reason, e.Message})
			}
		}
	}
	return out, nil
}

// granted returns whether the user has the right now. A server that has just started refuses what it takes a second
// later, and what was to be deleted may no longer be there.
func (w *world) granted(ctx context.Context, r *refusal) (bool, error) {
	api := w.hub
	for _, m := range w.members {
		if m.ID == r.where {
			api = m.Client
		}
	}
	of := r.ObjectRef
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.User.Username,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.Verb, Group: of.APIGroup, Resource: of.Resource,
			Subresource: of.Subresource, Namespace: of.Namespace, Name: of.Name},
	}}
	err := insist(ctx, func() error { return api.Create(ctx, review) })
	return review.Status.Allowed, err
}

// allStated fails if a refusal is not stated within the time in which an agent asks for its rights again, unless what
// was refused is taken meanwhile.
func (w *world) allStated(ctx context.Context, what string) error {
	for began := time.Now(); ; {
		if _, err := w.auditAll(); err != nil {
			return err
		}
		statements, err := w.statements(ctx)
		if err != nil {
			return err
		}
		left := unstated(w.refusals, statements)
		for _, r := range left {
			if r.byRights() {
				if r.used, err = w.granted(ctx, r); err != nil {
					return err
				}
			}
		}
		left = slices.DeleteFunc(left, func(r *refusal) bool { return r.used })
		if len(left) == 0 {
			return nil
		}
		if time.Since(began) > 2*time.Minute+30*time.Second {
			for _, r := range left {
				w.tape.fail("after %s nobody states what was refused (U6): %s", what, r)
				r.stated = true // once
			}
			return nil
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}
