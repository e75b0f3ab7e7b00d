package clusterset

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Annotations of a ServiceExport about clients outside the clusters (F5).
const (
	// AnnotationExternal with the value "true" publishes the load balancer of the Service.
	AnnotationExternal = "clusterset-dns.io/external"
	// AnnotationExternalWeight is the weight of this cluster among those that publish theirs.
	AnnotationExternalWeight = "clusterset-dns.io/external-weight"
)

// The ClusterProperties of a cluster's place: first among the 16 properties that a record with a load balancer takes.
const (
	propertyRegion    = "region"
	propertyContinent = "continent"
	propertyLocation  = "location"
)

// Bounds of a load balancer: those in the record's CRD.
const (
	maxExternal   = 16 // of IP addresses, and of host names
	maxWeight     = 1000
	defaultWeight = 100
)

const continents = "AF AN AS EU NA OC SA" // as in GeoIP databases

// External is the load balancer of one export, validated, sorted and with the default weight; and where its cluster
// is, "" if unknown.
type External struct {
	hubv1alpha1.ExternalAddresses
	Region    string // one DNS label
	Continent string // such as EU
	Location  string // LAT,LON in degrees
}

// ParseExternal returns the load balancer of a record that ParseExport accepts, or nil if it has none. It leaves out
// what is invalid, and addresses that no other cluster may have (SPEC S4). The errors name refused addresses and
// exceeded limits.
func ParseExternal(spec *hubv1alpha1.ServiceExportRecordSpec, reserved []netip.Prefix) (*External, []error) {
	if spec.External == nil {
		return nil, nil
	}
	var refused []error
	keep := func(in []string, parse func(string) (string, error)) (out []string) {
		for _, text := range in {
			address, err := parse(text)
			if err != nil {
				refused = append(refused, err)
			} else if !slices.Contains(out, address) {
				out = append(out, address)
			}
		}
		slices.Sort(out)
		if len(out) > maxExternal {
			const text = "%d of %d addresses or host names are left out; the limit is %d"
			refused = append(refused, fmt.Errorf(text, len(out)-maxExternal, len(out), maxExternal))
			out = out[:maxExternal]
		}
		return out
	}
	out := &External{}
	out.Weight = new(ptr.Deref(spec.External.Weight, defaultWeight))
	if *out.Weight < 0 || *out.Weight > maxWeight {
		*out.Weight = defaultWeight
	}
	out.IPs = keep(spec.External.IPs, func(text string) (string, error) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return "", fmt.Errorf("address %q is no IP address", text)
		}
		return addr.String(), checkAddress(addr, reserved)
	})
	out.Hostnames = keep(spec.External.Hostnames, parseHostname)
	out.setPlace(spec.Properties) // the exporter reports what is invalid
	return out, refused
}

// setPlace sets where the cluster is, and returns an error for each property that is invalid.
func (e *External) setPlace(properties map[string]string) (invalid []error) {
	for _, p := range []struct {
		property string
		to       *string
		parse    func(string) string // "" if it is invalid
		want     string
	}{
		{propertyRegion, &e.Region, parseRegion, "a DNS label"},
		{propertyContinent, &e.Continent, parseContinent, "one of " + continents},
		{propertyLocation, &e.Location, parseLocation, "LAT,LON in degrees, such as 50.1,8.7"},
	} {
		value := strings.TrimSpace(properties[p.property])
		if *p.to = p.parse(value); value != "" && *p.to == "" {
			invalid = append(invalid, fmt.Errorf("ClusterProperty %s: %q: want %s", p.property, value, p.want))
		}
	}
	return invalid
}

func parseHostname(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	if _, err := netip.ParseAddr(name); err == nil || strings.HasSuffix(name, ".") ||
		len(validation.IsFullyQualifiedDomainName(field.NewPath("hostname"), name)) > 0 {
		return "", fmt.Errorf("host name %q: want a DNS name of at least two labels", text)
	}
	return name, nil
}

func parseRegion(text string) string {
	label := strings.ToLower(text)
	if len(validation.IsDNS1123Label(label)) > 0 {
		return ""
	}
	return label
}

func parseContinent(text string) string {
	code := strings.ToUpper(text)
	if !slices.Contains(strings.Fields(continents), code) {
		return ""
	}
	return code
}

func parseLocation(text string) string {
	degrees := func(text string, limit float64) string {
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(math.Abs(n) <= limit) { // which NaN is not
			return ""
		}
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	north, east, _ := strings.Cut(text, ",")
	if north, east = degrees(north, 90), degrees(east, 180); north == "" || east == "" {
		return ""
	}
	return north + "," + east
}

// externalOf returns what a ServiceExport publishes of its Service's load balancer, nil for nothing; and an error for
// each part that is left out.
func externalOf(
	own Place, export *mcsv1beta1.ServiceExport, svc *corev1.Service,
) (_ *hubv1alpha1.ExternalAddresses, leftOut []error) {
	refuse := func(annotation, format string, args ...any) {
		leftOut = append(leftOut, fmt.Errorf("annotation "+annotation+": "+format, args...))
	}
	switch asked := export.Annotations[AnnotationExternal]; {
	case asked == "" || asked == "false":
		return nil, nil
	case asked != "true":
		refuse(AnnotationExternal, "%q: want true", asked)
		return nil, leftOut
	case svc.Spec.Type != corev1.ServiceTypeLoadBalancer:
		refuse(AnnotationExternal, "the Service is of type %s, not LoadBalancer", svc.Spec.Type)
		return nil, leftOut
	}
	in := &hubv1alpha1.ExternalAddresses{}
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			in.IPs = append(in.IPs, ingress.IP)
		}
		if ingress.Hostname != "" {
			in.Hostnames = append(in.Hostnames, ingress.Hostname)
		}
	}
	if text := export.Annotations[AnnotationExternalWeight]; text != "" {
		weight, err := strconv.ParseInt(text, 10, 32)
		if in.Weight = new(int32(weight)); err != nil || weight < 0 || weight > maxWeight {
			in.Weight = nil
			refuse(AnnotationExternalWeight, "%q: want a number from 0 to %d", text, maxWeight)
		}
	}
	out, refused := ParseExternal(&hubv1alpha1.ServiceExportRecordSpec{External: in}, nil)
	leftOut = slices.Concat(leftOut, refused, out.setPlace(own.Properties)) // which the record has as properties
	if len(out.IPs)+len(out.Hostnames) == 0 {
		refuse(AnnotationExternal, "the load balancer of the Service has no address yet that clients can use")
		return nil, leftOut
	}
	return &out.ExternalAddresses, leftOut
}
