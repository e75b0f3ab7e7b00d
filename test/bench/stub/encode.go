package stub

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// object is what every object of the data set can do.
type object interface {
	metav1.Object
	runtime.Object
}

// item is one object, encoded once for all who list or watch it.
type item struct {
	key     string
	labels  map[string]string
	version uint64 // resourceVersion
	json    []byte // without the opening brace, kind and apiVersion
	proto   []byte // without the envelope that tells kind and apiVersion; nil for custom resources
}

func encode(o object, version uint64, custom bool) (*item, error) {
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	it := &item{key: o.GetNamespace() + "/" + o.GetName(), labels: o.GetLabels(), version: version, json: b[1:]}
	if p, ok := o.(interface{ Marshal() ([]byte, error) }); ok && !custom {
		if it.proto, err = p.Marshal(); err != nil {
			return nil, fmt.Errorf("encode %s: %w", it.key, err)
		}
	}
	return it, nil
}

// kind is how a resource is named in encoded objects.
type kind struct{ apiVersion, kind string }

// format writes lists and watch events in one encoding.
type format interface {
	contentType(watch bool) string
	event(b []byte, t string, k kind, it *item) []byte
	status(b []byte, s *metav1.Status) []byte // an ERROR event
	list(k kind, items []*item, version uint64, next string) []byte
	meta(m *metav1.ObjectMeta) *item // an object that has metadata only, for bookmarks
}

type jsonFormat struct{}

func (jsonFormat) contentType(bool) string { return "application/json" }

func (jsonFormat) event(b []byte, t string, k kind, it *item) []byte {
	b = fmt.Appendf(b, `{"type":%q,"object":`, t)
	return append(appendJSON(b, k, it), "}\n"...)
}

func appendJSON(b []byte, k kind, it *item) []byte {
	b = fmt.Appendf(b, `{"apiVersion":%q,"kind":%q,`, k.apiVersion, k.kind)
	return append(b, it.json...)
}

func (jsonFormat) status(b []byte, s *metav1.Status) []byte {
	body, err := json.Marshal(s)
	if err != nil {
		panic(err) // a Status is plain data
	}
	return fmt.Appendf(b, `{"type":"ERROR","object":%s}`+"\n", body)
}

func (jsonFormat) list(k kind, items []*item, version uint64, next string) []byte {
	b := fmt.Appendf(
		nil,
		`{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"%d","continue":%q},"items":[`,
		k.apiVersion,
		k.kind,
		version,
		next,
	)
	for i, it := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, k, it)
	}
	return append(b, "]}\n"...)
}

func (jsonFormat) meta(m *metav1.ObjectMeta) *item {
	b, err := json.Marshal(struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}{m})
	if err != nil {
		panic(err) // ObjectMeta is plain data
	}
	return &item{json: b[1:]}
}

// protoFormat is application/vnd.kubernetes.protobuf: objects in an envelope, watch events after their length.
type protoFormat struct{}

func (protoFormat) contentType(watch bool) string {
	if watch {
		return runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return runtime.ContentTypeProtobuf
}

func (f protoFormat) event(b []byte, t string, k kind, it *item) []byte {
	return f.frame(b, t, envelope(k, it.proto))
}

func (protoFormat) frame(b []byte, t string, raw []byte) []byte {
	e := metav1.WatchEvent{Type: t, Object: runtime.RawExtension{Raw: raw}}
	b = binary.BigEndian.AppendUint32(b, uint32(e.Size()))
	return append(b, must(e.Marshal())...)
}

func (f protoFormat) status(b []byte, s *metav1.Status) []byte {
	return f.frame(b, "ERROR", envelope(kind{"v1", "Status"}, must(s.Marshal())))
}

func (protoFormat) list(k kind, items []*item, version uint64, next string) []byte {
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10), Continue: next}
	b := appendField(nil, 1, must(meta.Marshal()))
	for _, it := range items {
		b = appendField(b, 2, it.proto)
	}
	k.kind += "List"
	return envelope(k, b)
}

func (protoFormat) meta(m *metav1.ObjectMeta) *item {
	return &item{proto: appendField(nil, 1, must(m.Marshal()))}
}

func appendField(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func envelope(k kind, raw []byte) []byte {
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: k.apiVersion, Kind: k.kind}, Raw: raw}
	return append([]byte("k8s\x00"), must(u.Marshal())...)
}

// must is for messages of the API machinery, whose Marshal fails only where a message outgrows memory.
func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
