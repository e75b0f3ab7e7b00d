package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// foreign returns an object that has a name that the import needs and that the agent may not write (I10); nil if there
// is none. Of several it is always the same one: what is reported names it, and must not change from pass to pass.
func (s *snapshot) foreign() client.Object {
	if s.imp != nil && !kube.Writable(s.imp) && !s.fillable() {
		return s.imp
	}
	if s.svc != nil && !kube.Writable(s.svc) {
		return s.svc
	}
	var first *discoveryv1.EndpointSlice
	for _, slice := range s.strays { // in any order, as the cache has them
		if endpoints.ServiceOf(slice.Name) == s.derivedName() && !kube.Writable(slice) &&
			(first == nil || slice.Name < first.Name) {
			first = slice
		}
	}
	if first == nil {
		return nil
	}
	return first
}

// fillable reports whether the agent may give VIPs to an import that another program declared (I11): those that it has
// are the agent's, also from the time before that program took the import over.
func (s *snapshot) fillable() bool {
	others := func(ip string) bool { return !slices.Contains(s.svc.Spec.ClusterIPs, ip) }
	return s.fillsDeclared && (imports.Fillable(s.imp) ||
		s.svc != nil && kube.Owned(s.svc) && !slices.ContainsFunc(s.imp.Spec.IPs, others))
}

// notOwned returns the condition Imported. It names the object and not its manager: another program may change its
// labels all the time.
func notOwned(o client.Object) metav1.Condition {
	kind := "ServiceImport"
	switch o.(type) {
	case *corev1.Service:
		kind = "Service"
	case *discoveryv1.EndpointSlice:
		kind = "EndpointSlice"
	}
	c := metav1.Condition{
		Type: hubv1alpha1.ConditionImported, Status: metav1.ConditionFalse, Reason: hubv1alpha1.ReasonNotOwned,
		Message: fmt.Sprintf("%s %s/%s belongs to another program, or somebody has removed its managed-by label, so "+
			"this cluster imports no change of the name; "+
			"to give it to the agent: kubectl -n %[2]s annotate %[4]s %[3]s %[5]s=true",
			kind, o.GetNamespace(), o.GetName(), strings.ToLower(kind), kube.AnnotationAdopt),
	}
	if _, declared := o.(*mcsv1beta1.ServiceImport); declared {
		c.Message += fmt.Sprintf("; if that program declares imports without IPs: kubectl annotate namespace "+
			"%s %s=%s", o.GetNamespace(), clusterset.AnnotationNamespaceDeclared, hubv1alpha1.DeclaredImportsFill)
	}
	return c
}

// What an API server may refuse, as the message of the condition Imported names it.
const (
	theNamespace = "the namespace of the import"
	theImport    = "the import"
	theChange    = "a change of the import, which stays as it is"
)

// reportWrite reports that the API server refuses what was to be written, until err is nil. It returns err. As long as
// it is the same, the first words stay: with each new text, the write would start another pass.
func (r Config) reportWrite(ctx context.Context, s *snapshot, what string, err error) error {
	if err == nil {
		return r.clearImported(ctx, s)
	}
	if !kube.Refused(err) {
		return err
	}
	begin := fmt.Sprintf("this cluster's API server refuses %s: ", what)
	c := metav1.Condition{
		Type: hubv1alpha1.ConditionImported, Status: metav1.ConditionFalse, Reason: hubv1alpha1.ReasonImportRefused,
		Message: fmt.Sprintf("%s%v; change its policy or quota", begin, err),
	}
	if what == theChange {
		c.Status, c.Reason = metav1.ConditionTrue, hubv1alpha1.ReasonChangeRefused
	}
	for _, rec := range s.copies {
		was := meta.FindStatusCondition(rec.Status.Conditions, c.Type)
		if was != nil && strings.HasPrefix(was.Message, begin) {
			c.Message = was.Message
		}
	}
	return errors.Join(err, r.reportRefused(ctx, s, c))
}

// reportRefused reports why the name is not imported as it is exported: in the condition Imported of this cluster's
// copies of the records and, once, by Event and in the same condition of the local ServiceExport. Another program that
// owns the import may write that as well, so the agent does not restore it there.
func (r Config) reportRefused(ctx context.Context, s *snapshot, c metav1.Condition) error {
	var copies []*hubv1alpha1.ServiceExportRecord
	for _, rec := range s.copies {
		if !rec.Spec.Withdrawn {
			copies = append(copies, r.currentCopy(s, rec))
			continue
		}
		// Its Service may be exported again.
		if _, _, err := r.setCondition(ctx, rec, metav1.Condition{Type: hubv1alpha1.ConditionImported}); err != nil {
			return err
		}
	}
	if len(copies) == 0 {
		return nil // all copies are lost, and so is the place for the condition
	}
	marked := copies // one that has the condition shows that an Event was raised
	for i, rec := range copies {
		if s.export != nil && rec.Spec.ClusterID == r.Cluster {
			marked = copies[i : i+1] // the others may have it from before there was an export
		}
	}
	reported := slices.ContainsFunc(marked, func(rec *hubv1alpha1.ServiceExportRecord) bool {
		is := meta.FindStatusCondition(rec.Status.Conditions, c.Type)
		return is != nil && is.Message == c.Message
	})
	if !reported {
		if err := r.patchExport(ctx, s, func(e *mcsv1beta1.ServiceExport) {
			e.Status.Conditions, _ = conditions.Set(
				e.Status.Conditions, []metav1.Condition{c}, e.Generation, metav1.NewTime(r.Now()))
		}); err != nil {
			return err
		}
	}
	for _, was := range copies {
		_, changed, err := r.setCondition(ctx, was, c)
		if err != nil {
			return err
		}
		if changed && !reported {
			reported = true
			log.FromContext(ctx).Info("not importing the name as it is exported", "reason", c.Message)
			if s.export != nil {
				r.Events.Event(s.export, kube.Warning, c.Reason, c.Message)
			} else {
				r.Events.Event(was, kube.Warning, c.Reason, c.Message)
			}
		}
	}
	return nil
}

// currentCopy returns a copy of a record. From this cluster's own, it removes a condition Imported that is older than
// the ServiceExport, because that report went to an earlier one. While this clock is behind the creation, it stays.
func (r Config) currentCopy(s *snapshot, rec *hubv1alpha1.ServiceExportRecord) *hubv1alpha1.ServiceExportRecord {
	is := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported)
	if is == nil || s.export == nil || rec.Spec.ClusterID != r.Cluster ||
		!is.LastTransitionTime.Before(&s.export.CreationTimestamp) || s.export.CreationTimestamp.After(r.Now()) {
		return rec
	}
	rec = rec.DeepCopy()
	meta.RemoveStatusCondition(&rec.Status.Conditions, is.Type)
	return rec
}

// clearImported removes the condition Imported: its cause is gone.
func (r Config) clearImported(ctx context.Context, s *snapshot) error {
	if err := r.patchExport(ctx, s, func(e *mcsv1beta1.ServiceExport) {
		meta.RemoveStatusCondition(&e.Status.Conditions, hubv1alpha1.ConditionImported)
	}); err != nil {
		return err
	}
	for _, rec := range s.copies {
		if _, _, err := r.setCondition(ctx, rec, metav1.Condition{Type: hubv1alpha1.ConditionImported}); err != nil {
			return err
		}
	}
	return nil
}

// clearReports removes the conditions Imported and EndpointsImported where nothing is to be imported.
func (r Config) clearReports(ctx context.Context, s *snapshot) error {
	return errors.Join(r.clearImported(ctx, s), r.reportLost(ctx, s, &foundSources{}))
}

// reportLost sets the condition EndpointsImported of the copies.
func (r Config) reportLost(ctx context.Context, s *snapshot, found *foundSources) error {
	for _, copied := range s.copies {
		was := meta.FindStatusCondition(copied.Status.Conditions, hubv1alpha1.ConditionEndpointsImported)
		cluster := copied.Spec.ClusterID
		c, lost := found.lost[cluster]
		switch {
		case lost && was != nil && was.Reason == c.Reason && c.Reason == hubv1alpha1.ReasonSliceRefused:
			continue // with each text of an error, the write would start another pass
		case !lost && !s.hub && was != nil && was.Reason != hubv1alpha1.ReasonSliceRefused:
			continue // as long as the hub says nothing
		case found.held[cluster] && was != nil && (!lost && was.Reason == hubv1alpha1.ReasonEndpointsRefused ||
			lost && strings.HasPrefix(was.Message, c.Message+"; ")):
			continue // what the hub does not show may be refused still, though no slice has it any more
		case !lost:
			c.Type = hubv1alpha1.ConditionEndpointsImported
		}
		if _, _, err := r.setCondition(ctx, copied, c); err != nil {
			return err
		}
	}
	return nil
}

// setCondition sets a condition of a copy, or removes it if it has no status. It returns the copy, and whether that
// changed anything.
func (r Config) setCondition(
	ctx context.Context, was *hubv1alpha1.ServiceExportRecord, c metav1.Condition,
) (is *hubv1alpha1.ServiceExportRecord, changed bool, err error) {
	all := was.Status.Conditions
	if c.Status == "" {
		changed = meta.RemoveStatusCondition(&all, c.Type)
	} else {
		all, changed = conditions.Set(all, []metav1.Condition{c}, was.Generation, metav1.NewTime(r.Now()))
	}
	if !changed {
		return was, false, nil
	}
	is = was.DeepCopy()
	is.Status.Conditions = all
	if err := r.Local.Status().Patch(ctx, is, kube.Changes(was)); err != nil {
		return was, false, err
	}
	return is, true, nil
}

// patchExport edits the status of the local ServiceExport, if there is one.
func (r Config) patchExport(ctx context.Context, s *snapshot, edit func(*mcsv1beta1.ServiceExport)) error {
	if s.export == nil {
		return nil
	}
	export := s.export.DeepCopy()
	if edit(export); equality.Semantic.DeepEqual(export.Status, s.export.Status) {
		return nil
	}
	return client.IgnoreNotFound(r.Local.Status().Patch(ctx, export, kube.StatusChanges(s.export)))
}
