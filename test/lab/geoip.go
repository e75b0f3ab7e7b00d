package lab

import (
	"bytes"
	bigendian "encoding/binary"
	"maps"
	"math"
	"net/netip"
	"os"
	"slices"
)

// Place is what a database of cities says of a network.
type Place struct {
	Latitude, Longitude float64
	Continent           string
}

// WriteGeoDatabase writes a database of cities in MaxMind's format, version 2, to a file. The networks must not
// overlap. As in MaxMind's own, IPv4 is below ::/96 and ::ffff:0:0/96.
func WriteGeoDatabase(file string, places map[string]Place) error {
	nodes := [][2]int{{}} // a record is 0 for nothing, a node's index, or -1 minus an offset in data
	var data bytes.Buffer
	insert := func(octets []byte, bits int) {
		at := 0
		for i := range bits {
			side := octets[i/8] >> (7 - i%8) & 1
			switch next := nodes[at][side]; {
			case i == bits-1:
				nodes[at][side] = -1 - data.Len()
			case next > 0:
				at = next
			default:
				nodes[at][side] = len(nodes)
				at = len(nodes)
				nodes = append(nodes, [2]int{})
			}
		}
	}
	for _, network := range slices.Sorted(maps.Keys(places)) {
		prefix := netip.MustParsePrefix(network)
		octets := prefix.Addr().As16() // IPv4 is 4in6
		if prefix.Addr().Is4() {
			insert(octets[:], prefix.Bits()+96)
			octets[10], octets[11] = 0, 0
			insert(octets[:], prefix.Bits()+96)
		} else {
			insert(octets[:], prefix.Bits())
		}
		p := places[network]
		data.Write(encodeGeo(map[string]any{
			"continent": map[string]any{"code": p.Continent},
			"location":  map[string]any{"latitude": p.Latitude, "longitude": p.Longitude},
		}))
	}
	var out bytes.Buffer
	for _, n := range nodes {
		for _, r := range n {
			switch {
			case r == 0:
				r = len(nodes)
			case r < 0:
				r = len(nodes) + 16 - 1 - r
			}
			out.Write([]byte{byte(r >> 16), byte(r >> 8), byte(r)})
		}
	}
	out.Write(make([]byte, 16))
	out.Write(data.Bytes())
	out.WriteString("\xab\xcd\xefMaxMind.com")
	out.Write(encodeGeo(map[string]any{
		"node_count": uint32(len(nodes)), "record_size": uint16(24), "ip_version": uint16(6),
		"database_type": "GeoLite2-City", "binary_format_major_version": uint16(2),
		"binary_format_minor_version": uint16(0), "build_epoch": uint64(1), "languages": []string{"en"},
		"description": map[string]any{"en": "a test's"},
	}))
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// encodeGeo encodes a value of the data section. All sizes are below 29, so they fit into the first octet.
func encodeGeo(v any) []byte {
	head := func(kind, size int) []byte {
		if kind > 7 {
			return []byte{byte(size), byte(kind - 7)}
		}
		return []byte{byte(kind<<5 | size)}
	}
	switch v := v.(type) {
	case string:
		return append(head(2, len(v)), v...)
	case float64:
		return bigendian.BigEndian.AppendUint64(head(3, 8), math.Float64bits(v))
	case uint16:
		return bigendian.BigEndian.AppendUint16(head(5, 2), v)
	case uint32:
		return bigendian.BigEndian.AppendUint32(head(6, 4), v)
	case uint64:
		return bigendian.BigEndian.AppendUint64(head(9, 8), v)
	case []string:
		out := head(11, len(v))
		for _, s := range v {
			out = append(out, encodeGeo(s)...)
		}
		return out
	case map[string]any:
		out := head(7, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out = append(append(out, encodeGeo(key)...), encodeGeo(v[key])...)
		}
		return out
	}
	panic("no such type")
}
