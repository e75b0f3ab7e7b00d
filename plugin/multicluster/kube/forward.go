package kube

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// forwarded is a watch whose events pass a function. Unlike watch.Filter it ends with Stop, though nobody reads on.
type forwarded struct {
	watch.Interface
	events chan watch.Event
	done   chan struct{}
	once   sync.Once
}

// forward passes on what f returns for each event, and for the zero event at the end.
func forward(w watch.Interface, f func(watch.Event) (watch.Event, bool)) watch.Interface {
	out := &forwarded{Interface: w, events: make(chan watch.Event), done: make(chan struct{})}
	go out.run(f)
	return out
}

func (w *forwarded) run(f func(watch.Event) (watch.Event, bool)) {
	defer close(w.events)
	for open := true; open; {
		var e watch.Event
		e, open = <-w.Interface.ResultChan()
		if out, ok := f(e); ok {
			select {
			case w.events <- out:
			case <-w.done:
				return
			}
		}
	}
}

// ResultChan implements watch.Interface.
func (w *forwarded) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *forwarded) Stop() {
	w.Interface.Stop()
	w.once.Do(func() { close(w.done) })
}

// reporter makes the event that tells the Reflector of a stream that cannot be read.
type reporter struct{}

// AsObject implements watch.Reporter.
func (reporter) AsObject(err error) runtime.Object { return &apierrors.NewInternalError(err).ErrStatus }
