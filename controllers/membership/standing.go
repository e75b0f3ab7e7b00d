package membership

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// believed is how long the hub must refuse this member before that is more than an API server that is just starting.
const believed = time.Minute

// Standing tells this cluster's users that the hub refuses it: by an Event, and by a Lease that is there as long as that lasts, of which
// serviceexport makes what it says of exports. Local reads no cache.
type Standing struct {
	Local  client.Client
	Now    func() time.Time
	Events kube.Events

	mu    sync.Mutex
	since time.Time // of the first refusal in a row
	known bool      // whether the Lease is there, or not, as it should be
}

// Answered takes note of how the hub answered. What is neither a refusal nor a success says nothing.
func (s *Standing) Answered(ctx context.Context, answer error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := refuses(answer)
	if !refused && answer != nil {
		return
	}
	if refused != !s.since.IsZero() {
		s.since, s.known = time.Time{}, false
		if refused {
			s.since = s.Now()
		}
	}
	if s.known || refused && s.Now().Sub(s.since) < believed {
		return
	}
	say := s.clear
	if refused {
		say = s.tell
	}
	if err := say(ctx); err != nil {
		log.FromContext(ctx).Error(err, "what the hub thinks of this member cannot be told; it is tried again", "refused", refused)
		return
	}
	s.known = true
}

func (s *Standing) tell(ctx context.Context) error {
	message := fmt.Sprintf("Since %s the hub refuses this member's credentials: %s. What is imported stays as it was; what is exported is not kept up to date.",
		s.since.UTC().Format(time.RFC3339), whyRefused)
	since := metav1.NewMicroTime(s.since)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: kube.SystemNamespace, Name: clusterset.LeaseRefused,
		Labels:      map[string]string{derived.LabelManagedBy: kube.Manager},
		Annotations: map[string]string{clusterset.AnnotationRefused: message},
	}, Spec: coordinationv1.LeaseSpec{AcquireTime: &since}}
	err := s.Local.Create(ctx, lease)
	if apierrors.IsAlreadyExists(err) {
		return nil // said before a restart
	}
	if err == nil {
		s.Events.Event(kube.System(), kube.Warning, "CredentialsRefused", message)
	}
	return err
}

func (s *Standing) clear(ctx context.Context) error {
	lease, err := kube.Get[*coordinationv1.Lease](ctx, s.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRefused})
	if err != nil || lease == nil {
		return err
	}
	return kube.Gone(s.Local.Delete(ctx, lease))
}
