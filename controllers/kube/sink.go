package kube

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
)

// EventRecorder writes Events to an API server, as reported by an instance: whose they are, once the Events of many
// clusters are collected in one place (ID6). They go on for as long as the process does.
func EventRecorder(cfg *rest.Config, scheme *runtime.Scheme, instance string) (events.EventRecorder, error) {
	api, err := eventsclient.NewForConfig(rest.AddUserAgent(rest.CopyConfig(cfg), "events"))
	if err != nil {
		return nil, err
	}
	broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: api}, instance})
	if err := broadcaster.StartRecordingToSinkWithContext(context.Background()); err != nil {
		return nil, err
	}
	return broadcaster.NewRecorder(scheme, Manager), nil
}

type sink struct {
	*events.EventSinkImpl
	instance string
}

// Create is events.EventSink's.
func (s sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	e.ReportingInstance = s.instance // client-go's is the host
	return s.EventSinkImpl.Create(ctx, e)
}
