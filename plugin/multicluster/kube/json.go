package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxFrame bounds one object, as client-go does.
const maxFrame = 16 << 20

var (
	errFrame   = fmt.Errorf("an object of more than %d octets: what the API server sent is no Kubernetes object", maxFrame)
	errNoValue = errors.New("what the API server sent is no JSON")
)

// jsonSource cuts a stream into JSON values. A value is valid until the next one is asked for.
type jsonSource struct {
	r        io.Reader
	buf      []byte
	pos, end int
}

func newJSONSource(r io.Reader) *jsonSource { return &jsonSource{r: r, buf: make([]byte, 16<<10)} }

// fill reads more behind what is kept from pos on.
func (s *jsonSource) fill() error {
	if s.pos > 0 {
		s.end = copy(s.buf, s.buf[s.pos:s.end])
		s.pos = 0
	}
	if s.end == len(s.buf) {
		if len(s.buf) >= maxFrame {
			return errFrame
		}
		s.buf = append(s.buf, make([]byte, len(s.buf))...)
	}
	n, err := s.r.Read(s.buf[s.end:])
	s.end += n
	if n > 0 {
		return nil
	}
	return err
}

// peek is the first octet that is not white space.
func (s *jsonSource) peek() (byte, error) {
	for {
		for ; s.pos < s.end; s.pos++ {
			switch c := s.buf[s.pos]; c {
			case ' ', '\t', '\n', '\r':
			default:
				return c, nil
			}
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

// token consumes one octet of punctuation.
func (s *jsonSource) token() (byte, error) {
	c, err := s.peek()
	s.pos++
	return c, err
}

// value consumes one value. At the end of the stream it is io.EOF, within a value io.ErrUnexpectedEOF.
func (s *jsonSource) value() ([]byte, error) {
	if _, err := s.peek(); err != nil {
		return nil, err
	}
	var e extent
	for i := s.pos; ; {
		n, done := e.scan(s.buf[i:s.end])
		i += n
		if done {
			v := s.buf[s.pos:i]
			s.pos = i
			if len(v) == 0 {
				return nil, errNoValue
			}
			return v, nil
		}
		i -= s.pos
		if err := s.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		i += s.pos
	}
}

// extent finds the end of a value, piece by piece. It does not check what is inside.
type extent struct {
	depth           int
	quoted, escaped bool
	scalar          bool
}

// scan consumes octets up to the end of the value and tells whether it came. A number ends before what follows it.
func (e *extent) scan(b []byte) (n int, done bool) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		if e.quoted {
			switch {
			case e.escaped:
				e.escaped = false
			case c == '\\':
				e.escaped = true
			case c == '"':
				e.quoted = false
				if e.depth == 0 {
					return i + 1, true
				}
			}
			continue
		}
		switch c {
		case '"':
			if e.scalar {
				return i, true
			}
			e.quoted = true
		case '{', '[':
			if e.scalar {
				return i, true
			}
			e.depth++
		case '}', ']':
			if e.depth == 0 {
				return i, true
			}
			if e.depth--; e.depth == 0 {
				return i + 1, true
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if e.depth == 0 && (e.scalar || c == ',' || c == ':') {
				return i, true
			}
		default:
			if e.depth == 0 {
				e.scalar = true
			}
		}
	}
	return len(b), false
}

// cursor reads one JSON value in memory. What is not of the kind asked for is passed over, as null is. On what is no JSON it
// stops somewhere, without reading beyond the end.
type cursor struct {
	b []byte
	i int
}

// next skips white space, and is 0 at the end.
func (c *cursor) next() byte {
	for ; c.i < len(c.b); c.i++ {
		switch ch := c.b[c.i]; ch {
		case ' ', '\t', '\n', '\r':
		default:
			return ch
		}
	}
	return 0
}

// raw consumes one value.
func (c *cursor) raw() []byte {
	c.next()
	var e extent
	n, _ := e.scan(c.b[c.i:])
	v := c.b[c.i : c.i+n]
	c.i += n
	return v
}

// accept consumes one octet of punctuation if it is next.
func (c *cursor) accept(ch byte) bool {
	if c.next() != ch {
		return false
	}
	c.i++
	return true
}

// object calls field for each member; field consumes its value.
func (c *cursor) object(field func(key []byte)) {
	if !c.accept('{') {
		c.raw()
		return
	}
	for c.next() == '"' {
		key := c.text()
		if !c.accept(':') {
			break
		}
		at := c.i
		field(key)
		if c.i == at {
			c.raw()
		}
		if !c.accept(',') {
			break
		}
	}
	c.accept('}')
}

// array calls element for each element; element consumes it.
func (c *cursor) array(element func()) {
	if !c.accept('[') {
		c.raw()
		return
	}
	for ch := c.next(); ch != 0 && ch != ']'; {
		at := c.i
		element()
		if c.i == at {
			if c.raw(); c.i == at {
				break
			}
		}
		if !c.accept(',') {
			break
		}
	}
	c.accept(']')
}

// text consumes a value and is its content if it is a string, else nil. It is valid as long as what the cursor reads.
func (c *cursor) text() []byte {
	v := c.raw()
	if len(v) < 2 || v[0] != '"' || v[len(v)-1] != '"' {
		return nil
	}
	inner := v[1 : len(v)-1]
	if bytes.IndexByte(inner, '\\') < 0 && isASCII(inner) {
		return inner
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		return nil
	}
	return []byte(s)
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// uint consumes a value and is its content if it is a whole number that fits into bits, else 0.
func (c *cursor) uint(bits int) uint64 { return parseUint(c.raw(), bits) }

// parseUint is 0 for what is no number in decimal digits or does not fit.
func parseUint(b []byte, bits int) uint64 {
	var n uint64
	if len(b) == 0 || len(b) > 19 {
		return 0
	}
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0
		}
		n = n*10 + uint64(d-'0')
	}
	if bits < 64 && n>>bits != 0 {
		return 0
	}
	return n
}
