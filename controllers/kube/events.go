package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
)

// Events records Events on the object that they concern. eventType is Normal or Warning. docs/reference.md lists all
// reasons.
type Events interface {
	Event(about runtime.Object, eventType, reason, message string)
}

const (
	Warning = corev1.EventTypeWarning
	Normal  = corev1.EventTypeNormal
)

// System returns the object of Events that concern the agent as a whole: the namespace clusterset-system.
func System() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1",
		Kind:       "Namespace",
		Name:       SystemNamespace,
		Namespace:  SystemNamespace,
	}
}

// EventReason returns the Event reason for a condition: its reason, or its type if the reason is a
// comma-separated list of conflicts.
func EventReason(c metav1.Condition) string {
	if strings.Contains(c.Reason, ",") {
		return c.Type
	}
	return c.Reason
}

// NewEvents returns Events that are written to an API server until the process ends. instance is the reportingInstance
// of each: it names the cluster where Events of many clusters are collected.
func NewEvents(cfg *rest.Config, scheme *runtime.Scheme, instance string) (Events, error) {
	api, err := eventsclient.NewForConfig(rest.AddUserAgent(rest.CopyConfig(cfg), "events"))
	if err != nil {
		return nil, err
	}
	broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: api}, instance})
	if err := broadcaster.StartRecordingToSinkWithContext(context.Background()); err != nil {
		return nil, err
	}
	return recorder{broadcaster.NewRecorder(scheme, Manager)}, nil
}

type sink struct {
	*events.EventSinkImpl
	instance string
}

// Create implements events.EventSink. client-go sets the host name as reportingInstance.
func (s sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e.ReportingInstance = s.instance
	return s.EventSinkImpl.Create(ctx, e)
}

type recorder struct{ events.EventRecorder }

// Event implements Events. It truncates the message to the limit of the API.
func (r recorder) Event(about runtime.Object, eventType, reason, message string) {
	note := conditions.Shorten(message, maxNote)
	if o, ok := about.(client.Object); ok { // client-go joins no Events about different versions
		o = o.DeepCopyObject().(client.Object)
		o.SetResourceVersion("")
		about = o
	}
	r.Eventf(about, nil, eventType, reason, action(note), "%s", note)
}

// maxNote is the API's limit in octets. The API server refuses an Event with a longer note.
const maxNote = 1024

// action returns an action that depends on the note. client-go joins Events that differ only in their notes into one
// series and shows the first note, so that a problem of a second cluster would stay hidden. The number of actions is
// bounded: another member that changes its notes cannot flood this cluster with Events. Two notes share an action by
// chance once in 64 cases, and then the first is shown.
func action(note string) string {
	const actions = 64
	h := fnv.New32a()
	_, _ = h.Write([]byte(note)) // it returns no error
	return fmt.Sprintf("Reconcile%02d", h.Sum32()%actions)
}
