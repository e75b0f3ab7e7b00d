package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const initialEventsEnd = metav1.InitialEventsAnnotationKey

// format reads the bodies of lists and watches in one encoding, straight into records.
type format interface {
	// event reads the next event of a watch; object is valid until the next one.
	event() (kind watch.EventType, object []byte, err error)
	// bookmark reads the metadata of a bookmark's object.
	bookmark(object []byte) (*metav1.PartialObjectMetadata, error)
	// status reads the object of an error event.
	status(object []byte) (*metav1.Status, error)
	// list reads the body of a list: its metadata into meta, and each item in turn.
	list(meta *metav1.ListMeta, item func(object []byte) error) error
}

// reader makes a record of one object; nil if it is none of ours.
type reader func(object []byte) (runtime.Object, error)

// decoder implements watch.Decoder.
type decoder struct {
	format  format
	read    reader
	listing *listing       // nil: the watch does not begin with a list, or it is complete
	listed  func(error)    // is told what the listing came to
	end     runtime.Object // the bookmark that ends the list, once the listing was handed over
	body    io.Closer
	cancel  context.CancelFunc
}

// Decode blocks until the next event that the reflector is to have.
func (d *decoder) Decode() (watch.EventType, runtime.Object, error) {
	if end := d.end; end != nil {
		d.end = nil
		return watch.Bookmark, end, nil
	}
	for {
		kind, object, err := d.event()
		l := d.listing
		switch {
		case err != nil:
			if l != nil {
				d.listed(err)
			} else if !errors.Is(err, io.EOF) {
				return watch.Error, brokenOff(err), nil
			}
			return "", nil, err
		case l == nil:
			return kind, object, nil
		case kind == watch.Error:
			d.listed(apierrors.FromObject(object))
			return kind, object, nil
		case kind != watch.Bookmark:
			l.apply(kind, object)
		case endsList(object):
			d.listing, d.end = nil, object
			d.listed(nil)
			return watch.Added, l, nil
		}
	}
}

// brokenOff makes the reflector list. Only a watch that the API server ended in order goes on where it was: behind any other end the API
// server may have been restored from a backup, and then sends nothing until it has passed the version that we ask from (decision 0015).
func brokenOff(err error) *metav1.Status {
	return &apierrors.NewResourceExpired("the watch broke off: " + err.Error()).ErrStatus
}

func endsList(bookmark runtime.Object) bool {
	b, ok := bookmark.(*metav1.PartialObjectMetadata)
	return ok && b.Annotations[initialEventsEnd] == "true"
}

// event reads the next event of an object of ours.
func (d *decoder) event() (watch.EventType, runtime.Object, error) {
	for {
		kind, raw, err := d.format.event()
		if err != nil {
			return "", nil, err
		}
		var object runtime.Object
		switch kind {
		case watch.Error:
			object, err = d.format.status(raw)
		case watch.Bookmark:
			object, err = d.format.bookmark(raw)
		case watch.Added, watch.Modified, watch.Deleted:
			object, err = d.read(raw)
		default:
			err = errors.New("unknown kind of event")
		}
		if err != nil {
			return "", nil, fmt.Errorf("%s event of a watch: %w", kind, err)
		}
		if object != nil {
			return kind, object, nil
		}
	}
}

// Close ends the stream.
func (d *decoder) Close() {
	d.cancel()
	d.body.Close() // nothing is lost: we only read
}

// reporter tells the reflector of a stream that cannot be read.
type reporter struct{}

func (reporter) AsObject(err error) runtime.Object {
	return &apierrors.NewInternalError(err).ErrStatus
}

// jsonFormat is that of custom resources.
type jsonFormat struct{ *jsonSource }

func (f jsonFormat) event() (kind watch.EventType, object []byte, err error) {
	b, err := f.value()
	if err != nil {
		return "", nil, err
	}
	c := cursor{b: b}
	c.object(func(key []byte) {
		switch string(key) {
		case "type":
			kind = eventType(c.text())
		case "object":
			object = c.raw()
		}
	})
	return kind, object, nil
}

// eventType is that of a watch event, "" if there is none of that name.
func eventType(b []byte) watch.EventType {
	for _, t := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(b) == string(t) {
			return t
		}
	}
	return ""
}

func (jsonFormat) bookmark(object []byte) (*metav1.PartialObjectMetadata, error) {
	m := new(metav1.PartialObjectMetadata)
	return m, json.Unmarshal(object, m)
}

func (jsonFormat) status(object []byte) (*metav1.Status, error) {
	s := new(metav1.Status)
	return s, json.Unmarshal(object, s)
}

func (f jsonFormat) list(meta *metav1.ListMeta, item func([]byte) error) error {
	if t, err := f.token(); err != nil || t != '{' {
		return errors.Join(errNoList, err)
	}
	for {
		if t, err := f.peek(); err != nil || t == '}' {
			return inside(err)
		}
		b, err := f.value()
		if err != nil {
			return inside(err)
		}
		key := string(b)
		if t, err := f.token(); err != nil || t != ':' {
			return errors.Join(errNoList, err)
		}
		switch key {
		case `"items"`:
			err = f.items(item)
		default:
			if b, err = f.value(); err == nil && key == `"metadata"` {
				err = json.Unmarshal(b, meta)
			}
		}
		if err != nil {
			return inside(err)
		}
		if t, err := f.peek(); err == nil && t == ',' {
			f.pos++
		}
	}
}

var errNoList = errors.New("what the API server sent is no list")

// inside makes an end of the stream where more must come an error.
func inside(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (f jsonFormat) items(item func([]byte) error) error {
	if t, err := f.peek(); err != nil || t != '[' {
		if err == nil {
			_, err = f.value() // null
		}
		return err
	}
	f.pos++
	for {
		switch t, err := f.peek(); {
		case err != nil:
			return err
		case t == ']':
			f.pos++
			return nil
		case t == ',':
			f.pos++
			continue
		}
		b, err := f.value()
		if err == nil {
			err = item(b)
		}
		if err != nil {
			return err
		}
	}
}

// protoFormat is that of what the API server has built in.
type protoFormat struct{ *protoSource }

func (f protoFormat) event() (kind watch.EventType, object []byte, err error) {
	b, err := f.frame()
	if err != nil {
		return "", nil, err
	}
	var raw []byte
	m := message{b: b}
	for m.next() {
		switch {
		case m.is(1, wireBytes):
			kind = eventType(m.val)
		case m.is(2, wireBytes):
			extension := message{b: m.val}
			for extension.next() {
				if extension.is(1, wireBytes) {
					raw = extension.val
				}
			}
			m.err = extension.err
		}
	}
	if m.err != nil {
		return "", nil, m.err
	}
	_, object, err = unwrap(raw)
	return kind, object, err
}

func (protoFormat) bookmark(object []byte) (*metav1.PartialObjectMetadata, error) {
	var md metadata
	m := message{b: object}
	for m.next() {
		if m.is(1, wireBytes) {
			m.err = md.read(m.val)
		}
	}
	b := new(metav1.PartialObjectMetadata)
	b.ResourceVersion = string(md.version)
	if md.initialEnd {
		b.Annotations = map[string]string{initialEventsEnd: "true"}
	}
	return b, m.err
}

func (protoFormat) status(object []byte) (*metav1.Status, error) {
	s := new(metav1.Status)
	return s, s.Unmarshal(object)
}

func (f protoFormat) list(meta *metav1.ListMeta, item func([]byte) error) error {
	return f.protoSource.list(meta.Unmarshal, item)
}
