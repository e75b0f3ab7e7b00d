package kube

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The wire types of protobuf.
const (
	wireVarint = iota
	wire64
	wireBytes
	wireStart
	wireEnd
	wire32
)

var (
	errProto = errors.New("malformed protobuf")
	magic    = []byte("k8s\x00") // stands before every object in Kubernetes' protobuf
)

// message reads the fields of a protobuf message in memory. It takes what the generated Unmarshal of Kubernetes takes.
type message struct {
	b   []byte
	err error
	num int32  // of the field that next found
	typ int    // its wire type
	n   uint64 // its value, if a varint
	val []byte // its value, if bytes
}

// next moves to the next field, and is false at the end or on an error.
func (m *message) next() bool {
	if m.err != nil || len(m.b) == 0 {
		return false
	}
	if m.short() {
		return true
	}
	tag := m.varint()
	m.num, m.typ = int32(tag>>3), int(tag&7)
	if m.err == nil && (m.typ == wireEnd || m.num <= 0) {
		m.err = errProto
	}
	m.value(0)
	return m.err == nil
}

// short is next for a field of less than 128 octets, as most are: tag and length are one octet each.
func (m *message) short() bool {
	b := m.b
	if len(b) < 2 || b[0] >= 0x80 || b[0]&7 != wireBytes || b[0]>>3 == 0 || b[1] >= 0x80 || int(b[1]) > len(b)-2 {
		return false
	}
	end := 2 + int(b[1])
	m.num, m.typ, m.val, m.b = int32(b[0]>>3), wireBytes, b[2:end], b[end:]
	return true
}

// pair reads the message as an entry of a map.
func (m *message) pair() (key, value []byte) {
	for m.err == nil && len(m.b) > 0 {
		tag := m.varint()
		m.num, m.typ = int32(tag>>3), int(tag&7)
		if m.num == 1 || m.num == 2 {
			m.typ = wireBytes // the generated code does not look either
		}
		m.value(0)
		switch m.num {
		case 1:
			key = m.val
		case 2:
			value = m.val
		}
	}
	return key, value
}

func (m *message) value(depth int) {
	switch m.typ {
	case wireVarint:
		m.n = m.varint()
	case wire64:
		m.take(8)
	case wireBytes:
		m.val = m.take(m.varint())
	case wire32:
		m.take(4)
	case wireStart:
		m.skipGroup(depth)
	default:
		m.err = errProto
	}
}

// skipGroup passes over a field of the kind that proto3 has no more.
func (m *message) skipGroup(depth int) {
	num, typ := m.num, m.typ
	defer func() { m.num, m.typ = num, typ }()
	for depth < 100 && m.err == nil {
		if len(m.b) == 0 {
			break
		}
		tag := m.varint()
		if m.typ = int(tag & 7); m.typ == wireEnd {
			return
		}
		m.value(depth + 1)
	}
	m.err = errProto
}

// varint reads a number. Most take one octet.
func (m *message) varint() uint64 {
	if len(m.b) > 0 && m.b[0] < 0x80 {
		n := m.b[0]
		m.b = m.b[1:]
		return uint64(n)
	}
	return m.long()
}

func (m *message) long() uint64 {
	var n uint64
	for i := range m.b {
		if i == 10 {
			break
		}
		n |= uint64(m.b[i]&0x7f) << (7 * i)
		if m.b[i] < 0x80 {
			m.b = m.b[i+1:]
			return n
		}
	}
	m.err = errProto
	return 0
}

func (m *message) take(n uint64) []byte {
	if m.err != nil || n > uint64(len(m.b)) {
		m.err = errProto
		return nil
	}
	v := m.b[:n]
	m.b = m.b[n:]
	return v
}

// is tells whether the field has the number and the type, and makes another type of that number an error.
func (m *message) is(num int32, typ int) bool {
	if m.num != num {
		return false
	}
	if m.typ != typ {
		m.err = errProto
		return false
	}
	return true
}

// unwrap takes an object out of its envelope.
func unwrap(b []byte) (kind, raw []byte, err error) {
	if !bytes.HasPrefix(b, magic) {
		return nil, nil, errors.New("what the API server sent is not Kubernetes' protobuf")
	}
	m := message{b: b[len(magic):]}
	for m.next() {
		switch {
		case m.is(1, wireBytes):
			meta := message{b: m.val}
			for meta.next() {
				if meta.is(2, wireBytes) {
					kind = meta.val
				}
			}
			m.err = meta.err
		case m.is(2, wireBytes):
			raw = m.val
		}
	}
	return kind, raw, m.err
}

// protoSource cuts a stream into frames: four octets of length and a message. A frame is valid until the next one.
type protoSource struct {
	r   *bufio.Reader
	buf []byte
}

func newProtoSource(r io.Reader) *protoSource { return &protoSource{r: bufio.NewReaderSize(r, 16<<10)} }

func (s *protoSource) frame() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return nil, err
	}
	return s.read(uint64(binary.BigEndian.Uint32(head[:])))
}

func (s *protoSource) read(n uint64) ([]byte, error) {
	if n > maxFrame {
		return nil, fmt.Errorf("an object of %d octets: what the API server sent is not Kubernetes' protobuf", n)
	}
	if uint64(cap(s.buf)) < n || cap(s.buf) > 1<<20 && n < 64<<10 {
		s.buf = make([]byte, n)
	}
	s.buf = s.buf[:n]
	_, err := io.ReadFull(s.r, s.buf)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return s.buf, err
}

// list reads an enveloped list from the stream, one field at a time: meta gets its metadata, item each item.
func (s *protoSource) list(meta, item func([]byte) error) error {
	head, err := s.read(uint64(len(magic)))
	if err != nil {
		return err
	}
	if !bytes.Equal(head, magic) {
		return errors.New("what the API server sent is not Kubernetes' protobuf")
	}
	for {
		num, n, err := s.field()
		if err != nil {
			return err
		}
		if num == 2 { // the list itself: all that follows belongs to it, but for what it encloses
			return s.items(int64(n), meta, item)
		}
		if _, err := s.read(n); err != nil {
			return err
		}
	}
}

func (s *protoSource) items(left int64, meta, item func([]byte) error) error {
	whole := s.r
	defer func() { s.r = whole }()
	limited := &io.LimitedReader{R: whole, N: left}
	s.r = bufio.NewReaderSize(limited, 16<<10)
	for {
		num, n, err := s.field()
		if errors.Is(err, io.EOF) && limited.N == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := s.read(n)
		if err != nil {
			return err
		}
		switch num {
		case 1:
			err = meta(b)
		case 2:
			err = item(b)
		}
		if err != nil {
			return err
		}
	}
}

// field reads the tag and the length of a field of bytes; lists have no other.
func (s *protoSource) field() (num, length uint64, err error) {
	tag, err := binary.ReadUvarint(s.r)
	if err != nil {
		return 0, 0, err
	}
	if tag&7 != wireBytes {
		return 0, 0, errProto
	}
	length, err = binary.ReadUvarint(s.r)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return tag >> 3, length, err
}
