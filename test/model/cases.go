package model

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Case is one line of test/cases/dns.json; test/cases/README.md says what the fields mean.
type Case struct {
	ID    int      `json:"id"`
	Rule  string   `json:"rule"`
	Name  string   `json:"q"`
	Type  string   `json:"t"`
	Want  string   `json:"r"`
	An    []string `json:"an"`
	Ar    []string `json:"ar"`
	Proto string   `json:"proto"`
	EDNS  int      `json:"edns"`
	Back  string   `json:"back"`
}

// Title names the case in tests, by the rules of docs/spec/DNS.md that it is of.
func (c Case) Title() string {
	return fmt.Sprintf("%s_case_%d_%s_%s", strings.ReplaceAll(c.Rule, " ", "_"), c.ID, c.Name, c.Type)
}

// Question is the case's question with its full name.
func (c Case) Question() Question {
	name := c.Name
	if !strings.HasSuffix(name, ".") {
		name += ".svc." + DefaultZone
	}
	return Question{Name: name, Type: dns.StringToType[c.Type]}
}

// Size is the largest message that the case's client takes.
func (c Case) Size() int {
	switch {
	case c.Proto == "tcp":
		return dns.MaxMsgSize
	case c.EDNS > dns.MinMsgSize:
		return c.EDNS
	}
	return dns.MinMsgSize
}

// LoadCases reads test/cases/dns.json.
func LoadCases(path string) ([]Case, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var cases []Case
	if err := decoder.Decode(&cases); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, c := range cases {
		if c.Question().Type == dns.TypeNone || (c.Proto != "udp" && c.Proto != "tcp") {
			return nil, fmt.Errorf("%s: case %d: unknown type %q or proto %q", path, c.ID, c.Type, c.Proto)
		}
	}
	return cases, nil
}

// LoadFixture reads the ServiceImports and EndpointSlices of test/cases/fixture.yaml. Namespaces are passed over: no
// answer depends on them (N13).
func LoadFixture(path string) (Objects, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Objects{}, err
	}
	var objs Objects
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objs, nil
		}
		if err == nil {
			err = objs.add(document)
		}
		if err != nil {
			return Objects{}, fmt.Errorf("%s: %w", path, err)
		}
	}
}

func (o *Objects) add(document []byte) error {
	var head struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	switch head.Kind {
	case "Namespace":
		return nil
	case "ServiceImport":
		var imp Import
		err := yaml.UnmarshalStrict(document, &imp)
		o.Imports = append(o.Imports, imp)
		return err
	case "EndpointSlice":
		var slice discoveryv1.EndpointSlice
		err := yaml.UnmarshalStrict(document, &slice)
		o.Slices = append(o.Slices, slice)
		return err
	}
	return fmt.Errorf("kind %q: want Namespace, ServiceImport or EndpointSlice", head.Kind)
}

// CheckCase compares the reply to c.Question() with the case. msg is nil where the next plugin was asked; a message
// from
// it may stand there too, if it makes no claim on authority. server is the address that ns.dns has.
func CheckCase(c Case, msg *dns.Msg, server netip.Addr) error {
	q := c.Question()
	if c.Want == NotOurs.String() {
		if msg != nil && msg.Authoritative {
			return report(q, msg, errors.New("want the next plugin's answer, got one with AA"))
		}
		return nil
	}
	if msg == nil {
		return fmt.Errorf("%s: want %s, got no reply of ours", q, c.Want)
	}
	want := map[string]Outcome{"NOERROR": Success, "NODATA": NoData, "NXDOMAIN": NameError}
	result, ok := want[c.Want]
	if !ok {
		return fmt.Errorf("case %d: unknown result %q", c.ID, c.Want)
	}
	problems := []error{checkEnvelope(result, DefaultZone, q, msg)}
	if result == Success {
		problems = append(problems, c.checkAnswers(msg, server), c.checkAdditional(msg, server))
	}
	if length := compressed(msg); length > c.Size() {
		problems = append(problems, fmt.Errorf("M3: it takes %d octets, more than %d", length, c.Size()))
	}
	return report(q, msg, errors.Join(problems...))
}

func (c Case) checkAnswers(msg *dns.Msg, server netip.Addr) error {
	var rtype string
	var number int
	if len(c.An) == 1 && strings.Contains(c.An[0], " x") {
		if _, err := fmt.Sscanf(c.An[0], "%s x%d", &rtype, &number); err != nil {
			return fmt.Errorf("case %d: %q: %w", c.ID, c.An[0], err)
		}
		cut := c.Proto == "udp" && strings.HasSuffix(c.An[0], " TC")
		for _, rr := range msg.Answer {
			if dns.Type(rr.Header().Rrtype).String() != rtype {
				return fmt.Errorf("answer must not hold %s", rr)
			}
		}
		if got := len(msg.Answer); cut != msg.Truncated || !cut && got != number {
			return fmt.Errorf("%d answers with TC %t, want %s", got, msg.Truncated, c.An[0])
		}
		return nil
	}
	if msg.Truncated {
		return errors.New("M3: TC is set")
	}
	if diff := Diff(resolve(c.An, server), brief(msg.Answer)); diff != "" {
		return fmt.Errorf("answer:\n%s", diff)
	}
	return nil
}

// checkAdditional lets glue be missing only where it would not have fitted, were its owners written out.
func (c Case) checkAdditional(msg *dns.Msg, server netip.Addr) error {
	missing, foreign := difference(resolve(c.Ar, server), brief(records(msg.Extra)))
	longest := 0
	for _, rr := range slices.Concat(msg.Answer, msg.Extra) {
		longest = max(longest, dns.Len(rr))
	}
	if msg.Truncated || uncompressed(msg)+len(missing)*longest > c.Size() {
		missing = nil
	}
	if len(missing)+len(foreign) > 0 {
		return fmt.Errorf("M3: additional: missing %q, foreign %q", missing, foreign)
	}
	return nil
}

func uncompressed(msg *dns.Msg) int {
	large := msg.Copy()
	large.Compress = false
	return large.Len()
}

// resolve puts the server's address where a case says SERVER.
func resolve(texts []string, server netip.Addr) []string {
	resolved := make([]string, 0, len(texts))
	for _, text := range texts {
		resolved = append(resolved, strings.ReplaceAll(text, "SERVER", server.String()))
	}
	return resolved
}

// brief writes records as the cases do: no owner, and of SRV only port and target.
func brief(section []dns.RR) []string {
	texts := make([]string, 0, len(section))
	for _, rr := range section {
		_, text, _ := strings.Cut(Canonical(rr), " ")
		if srv, ok := rr.(*dns.SRV); ok {
			text = fmt.Sprintf("SRV %d %s", srv.Port, dns.CanonicalName(srv.Target))
		}
		texts = append(texts, text)
	}
	return texts
}
