// Package bundle writes an archive for somebody who helps from afar: a snapshot, Events, logs and reports. It never has
// a Secret, and replaces what looks like a credential in everything else. status, explain and doctor answer from it.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	folder = "clusterset-support"
	stored = "snapshot.yaml"
)

type archive struct {
	to       *tar.Writer
	now      time.Time
	problems []string
	err      error // the first error of writing
}

// Write writes a tar.gz of a snapshot, the logs of clusters, by folder, and further files, by name, which have no
// credentials. errors.txt names what cannot be read, and unread counts it; Write fails only if out does, or if ctx has
// ended.
func Write(ctx context.Context, out io.Writer, now time.Time, s *snapshot.Snapshot,
	clusters map[string]*cluster.Cluster, files map[string][]byte) (unread int, err error) {
	zipped := gzip.NewWriter(out)
	a := &archive{to: tar.NewWriter(zipped), now: now}
	text, err := marshal(s)
	if err != nil {
		return 0, err
	}
	a.add(stored, text)
	for p, lack := range s.Unread {
		a.problems = append(a.problems, fmt.Sprintf("%s: %s", p, lack.Why))
	}
	for name, c := range clusters {
		a.logs(ctx, name, c)
	}
	for name, text := range files {
		a.add(name, text)
	}
	a.add("errors.txt", Redact([]byte(strings.Join(a.problems, "\n")+"\n")))
	if err := errors.Join(ctx.Err(), a.err, a.to.Close(), zipped.Close()); err != nil {
		return 0, err
	}
	return len(a.problems), nil
}

// add writes a file.
func (a *archive) add(name string, text []byte) {
	head := &tar.Header{Name: path.Join(folder, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.now}
	if a.err == nil {
		a.err = a.to.WriteHeader(head)
	}
	if a.err == nil {
		_, a.err = a.to.Write(text)
	}
}

// logs adds the logs of our Pods and of the cluster's DNS, and of their previous instances.
func (a *archive) logs(ctx context.Context, name string, c *cluster.Cluster) {
	for namespace, labels := range map[string]client.MatchingLabels{kube.SystemNamespace: nil, "clusterset-dns": nil,
		metav1.NamespaceSystem: {"k8s-app": "kube-dns"}} {
		var pods corev1.PodList
		if err := c.List(ctx, &pods, client.InNamespace(namespace), labels); err != nil {
			a.problems = append(a.problems, fmt.Sprintf("%s: listing Pods in %s: %v", name, namespace, err))
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			for _, container := range p.Spec.Containers {
				for suffix, previous := range map[string]bool{".log": false, ".previous.log": true} {
					text, err := snapshot.Log(ctx, c, p, container.Name, previous, 2000)
					if err == nil {
						a.add(path.Join(name, namespace, p.Name+"."+container.Name+suffix), Redact(text))
					} else if !previous { // most have no previous instance
						a.problems = append(a.problems, fmt.Sprintf("%s: log of %s: %v", name, p.Name, err))
					}
				}
			}
		}
	}
}

// Load reads the snapshot of an archive.
func Load(file string) (*snapshot.Snapshot, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading the archive failed: %w", err)
	}
	defer in.Close()
	text, err := content(in)
	out := &snapshot.Snapshot{}
	if err == nil {
		err = yaml.Unmarshal(text, out)
	}
	if errors.Is(err, io.EOF) {
		return nil, report.Fail("kubectl clusterset gather writes it", "the archive %s has no %s", file, stored)
	} else if err != nil {
		return nil, fmt.Errorf("reading the archive %s failed: %w", file, err)
	}
	return out, nil
}

// content returns the snapshot of an archive, or io.EOF if there is none.
func content(in io.Reader) ([]byte, error) {
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(unzipped); ; {
		switch head, err := r.Next(); {
		case err != nil:
			return nil, err
		case head.Name == path.Join(folder, stored):
			return io.ReadAll(r)
		}
	}
}

// marshal returns a snapshot as YAML, without what looks like a credential, and without the path of the kubeconfig.
func marshal(s *snapshot.Snapshot) ([]byte, error) {
	shown := *s
	shown.Flags.Kubeconfig, shown.Flags.HubKubeconfig = "", ""
	tree, err := Clean(&shown)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(tree)
}

// Clean returns the JSON of a value, decoded, without what looks like a credential.
func Clean(v any) (tree any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber() // revisions are larger than floats can hold
	if err := numbers.Decode(&tree); err != nil {
		return nil, err
	}
	return clean(tree), nil
}

// clean replaces what looks like a credential in every string, and literal values of environment variables.
func clean(v any) any {
	switch x := v.(type) {
	case map[string]any:
		delete(x, corev1.LastAppliedConfigAnnotation) // the whole object again, as text
		for key, e := range x {
			if list, is := e.([]any); is && key == "env" {
				for _, one := range list {
					if m, is := one.(map[string]any); is && m["value"] != nil {
						m["value"] = redacted
					}
				}
			}
			if text, is := e.(string); is && text != "" {
				if line := key + ": " + text; !strings.Contains(text, "\n") && string(Redact([]byte(line))) != line {
					x[key] = redacted
					continue
				}
			}
			x[key] = clean(e)
		}
	case []any:
		for i, e := range x {
			x[i] = clean(e)
		}
	case string:
		return string(Redact([]byte(x)))
	}
	return v
}

const redacted = "REDACTED"

// credentials match text that looks like a credential. Groups 1 and 2 are kept, the rest replaced. Quotes may be
// escaped. A value in quotes does not begin with a space: such a quote ends an earlier text.
var credentials = []*regexp.Regexp{
	regexp.MustCompile(`()eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`), // a JSON Web Token
	regexp.MustCompile(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`),
	regexp.MustCompile(`(://[^\s/@:"]*:)[^\s/@"]+(@)`), // a URL's password
	regexp.MustCompile(`(?i)(\b(?:bearer|basic) +)[A-Za-z0-9+/=._~-]{8,}`),
	regexp.MustCompile(`(?i)(\b[a-z_-]*(?:password|passwd|token|secret|api_?key|access_key|client-key-data)` +
		`\\*["']?[:=] *)(?:\\+"[^"\\\s](?:[^"\\\n]|\\+[^"\\\n])*\\+"|"(?:[^"\\\s]|\\[^\n])(?:[^"\\\n]|\\.)*"|` +
		`'(?:[^'\s]|'')(?:[^'\n]|'')*'|\\*["']?[^\s"',}]+)`),
	regexp.MustCompile(`(?im)(^\s*(?:secret|aws_access_key|credentials|password|token)[ \t]+).*$`), // of the Corefile
}

// Redact replaces what looks like a credential.
func Redact(text []byte) []byte {
	for _, c := range credentials {
		text = c.ReplaceAll(text, []byte("${1}"+redacted+"${2}"))
	}
	return text
}
