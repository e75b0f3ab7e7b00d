package membership

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// reportAfter is how long the hub must refuse this member before that is reported: an API server that is starting may
// refuse valid credentials.
const reportAfter = time.Minute

// RefusalReporter reports that the hub refuses this member's credentials: by an Event, and by a Lease in this
// cluster that exists for as long as the hub does so. serviceexport reports it on every ServiceExport. Local does
// not read a cache.
type RefusalReporter struct {
	Local  client.Client
	Now    func() time.Time
	Events kube.Events

	mu       sync.Mutex
	since    time.Time // of the first refusal in a row; zero if the last answer was a success
	reported bool      // whether the Lease already reflects the hub's last answer
}

// Answered records how the hub answered. An error that is not a refusal changes nothing.
func (r *RefusalReporter) Answered(ctx context.Context, answer error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refuses := refused(answer)
	if !refuses && answer != nil {
		return
	}
	if refuses == r.since.IsZero() {
		r.since, r.reported = time.Time{}, false
		if refuses {
			r.since = r.Now()
		}
	}
	if r.reported || refuses && r.Now().Sub(r.since) < reportAfter {
		return
	}
	report := r.clear
	if refuses {
		report = r.report
	}
	if err := report(ctx); err != nil {
		log.FromContext(ctx).Error(err, "reporting whether the hub refuses this member failed", "refused", refuses)
		return
	}
	r.reported = true
}

func refusedLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: kube.SystemNamespace, Name: clusterset.LeaseRefused,
		Labels: map[string]string{derived.LabelManagedBy: kube.Manager},
	}}
}

func (r *RefusalReporter) report(ctx context.Context) error {
	message := fmt.Sprintf("Since %s the hub refuses this member's credentials: %s. "+
		"Imports stay as they are; exports are not updated.", r.since.UTC().Format(time.RFC3339), whyRefused)
	since := metav1.NewMicroTime(r.since)
	lease := refusedLease()
	lease.Annotations = map[string]string{clusterset.AnnotationRefused: message}
	lease.Spec.AcquireTime = &since
	err := r.Local.Create(ctx, lease)
	if apierrors.IsAlreadyExists(err) {
		return nil // reported before a restart
	}
	if err == nil {
		r.Events.Event(kube.System(), kube.Warning, "CredentialsRefused", message)
	}
	return err
}

func (r *RefusalReporter) clear(ctx context.Context) error {
	return kube.DeleteNamed(ctx, r.Local, r.Local, refusedLease())
}
