// Package support writes an archive for somebody who helps from afar: our objects, logs, Corefiles and Events. It never
// reads a Secret, and replaces what looks like a credential in everything else.
package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Logs returns the last lines of a container's log, of its previous instance if asked.
type Logs func(ctx context.Context, namespace, pod, container string, previous bool) ([]byte, error)

// Cluster is one to collect from.
type Cluster struct {
	*cluster.Cluster
	Folder    string // in the archive
	Namespace string // of the ClusterSet on the hub; "" in a member
	Logs      Logs
}

// listed is a kind to collect, in one namespace or, with "", in all: the objects that labels and keep select.
type listed struct {
	version, kind, namespace string
	labels                   client.MatchingLabels
	keep                     *regexp.Regexp // of names; nil for all
}

const (
	system     = kube.SystemNamespace
	beside     = "clusterset-dns"
	kubeSystem = metav1.NamespaceSystem
)

func (c *Cluster) lists() []listed {
	kubeDNS := client.MatchingLabels{"k8s-app": "kube-dns"}
	out := []listed{
		{"v1", "Node", "", nil, nil},
		{"apps/v1", "Deployment", system, nil, nil}, {"v1", "Pod", system, nil, nil},
		{"coordination.k8s.io/v1", "Lease", system, nil, nil}, {"events.k8s.io/v1", "Event", system, nil, nil},
		{"admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", nil,
			regexp.MustCompile("clusterset")},
	}
	if c.Namespace != "" {
		for _, kind := range []string{"ClusterSet", "ServiceExportRecord", "EndpointPage"} {
			out = append(out, listed{"hub.clusterset-dns.io/v1alpha1", kind, c.Namespace, nil, nil})
		}
		return append(out, listed{"multicluster.x-k8s.io/v1alpha1", "ClusterProfile", c.Namespace, nil, nil},
			listed{"coordination.k8s.io/v1", "Lease", c.Namespace, nil, nil},
			listed{"events.k8s.io/v1", "Event", c.Namespace, nil, nil})
	}
	return append(out,
		listed{"multicluster.x-k8s.io/v1beta1", "ServiceExport", "", nil, nil},
		listed{"multicluster.x-k8s.io/v1beta1", "ServiceImport", "", nil, nil},
		listed{"about.k8s.io/v1beta1", "ClusterProperty", "", nil, nil},
		listed{"networking.k8s.io/v1", "ServiceCIDR", "", nil, nil},
		listed{"hub.clusterset-dns.io/v1alpha1", "ServiceExportRecord", system, nil, nil},
		listed{"discovery.k8s.io/v1", "EndpointSlice", "", client.MatchingLabels{
			discoveryv1.LabelManagedBy: kube.Manager}, nil},
		listed{"apps/v1", "Deployment", kubeSystem, kubeDNS, nil}, listed{"v1", "Pod", kubeSystem, kubeDNS, nil},
		listed{"v1", "ConfigMap", kubeSystem, nil,
			regexp.MustCompile(`^((rke2-coredns-rke2-)?coredns(-custom)?|kube-dns|node-local-dns)$`)},
		listed{"events.k8s.io/v1", "Event", kubeSystem, nil, regexp.MustCompile("dns")},
		listed{"apps/v1", "Deployment", beside, nil, nil}, listed{"v1", "Pod", beside, nil, nil},
		listed{"v1", "ConfigMap", beside, nil, regexp.MustCompile("^coredns$")},
		listed{"events.k8s.io/v1", "Event", beside, nil, nil})
}

// Write collects from clusters into a tar.gz. reports are further files, by their names. What cannot be read is named
// in errors.txt, and counted as unread; Write fails only if out does.
func Write(ctx context.Context, out io.Writer, now time.Time, clusters []Cluster, reports map[string][]byte) (
	unread int, err error) {
	zipped := gzip.NewWriter(out)
	a := &archive{to: tar.NewWriter(zipped), now: now}
	for i := range clusters {
		a.collect(ctx, &clusters[i])
	}
	for name, text := range reports {
		a.add(name, text)
	}
	a.add("errors.txt", []byte(strings.Join(a.problems, "\n")))
	for _, err := range []error{a.err, a.to.Close(), zipped.Close()} {
		if err != nil {
			return 0, err
		}
	}
	return len(a.problems), nil
}

type archive struct {
	to       *tar.Writer
	now      time.Time
	problems []string
	err      error // the first of writing
}

// add writes a redacted file.
func (a *archive) add(name string, text []byte) {
	text = Redact(text)
	head := &tar.Header{Name: path.Join("clusterset-support", name), Mode: 0o600, Size: int64(len(text)),
		ModTime: a.now}
	if a.err == nil {
		a.err = a.to.WriteHeader(head)
	}
	if a.err == nil {
		_, a.err = a.to.Write(text)
	}
}

func (a *archive) collect(ctx context.Context, c *Cluster) {
	for _, l := range c.lists() {
		all := &unstructured.UnstructuredList{}
		gv, _ := schema.ParseGroupVersion(l.version) // a constant
		all.SetGroupVersionKind(gv.WithKind(l.kind + "List"))
		err := c.List(ctx, all, client.InNamespace(l.namespace), l.labels)
		if err != nil {
			if !meta.IsNoMatchError(err) {
				a.problems = append(a.problems, fmt.Sprintf("%s: listing %s %s: %v", c.Folder, l.kind,
					l.namespace, err))
			}
			continue
		}
		var kept []byte
		for i := range all.Items {
			o := &all.Items[i]
			if l.keep != nil && !l.keep.MatchString(o.GetName()) {
				continue
			}
			if l.kind == "Pod" {
				a.logs(ctx, c, o)
			}
			strip(o.Object)
			if data, ok := o.Object["data"].(map[string]any); ok { // before YAML, which may write lines as one
				for key, v := range data {
					if s, is := v.(string); is {
						data[key] = string(Redact([]byte(s)))
					}
				}
			}
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				a.problems = append(a.problems, fmt.Sprintf("%s: %s %s: %v", c.Folder, l.kind, o.GetName(), err))
				continue
			}
			kept = append(append(kept, "---\n"...), text...)
		}
		if len(kept) > 0 {
			a.add(path.Join(c.Folder, l.namespace, strings.ToLower(l.kind)+".yaml"), kept)
		}
	}
}

// logs adds the logs of all containers of a Pod, and of their previous instances.
func (a *archive) logs(ctx context.Context, c *Cluster, pod *unstructured.Unstructured) {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, e := range containers {
		name, _ := e.(map[string]any)["name"].(string)
		for suffix, previous := range map[string]bool{".log": false, ".previous.log": true} {
			text, err := c.Logs(ctx, pod.GetNamespace(), pod.GetName(), name, previous)
			if err == nil {
				a.add(path.Join(c.Folder, pod.GetNamespace(), pod.GetName()+"."+name+suffix), text)
			} else if !previous { // most have no previous instance
				a.problems = append(a.problems, fmt.Sprintf("%s: log of %s: %v", c.Folder, pod.GetName(), err))
			}
		}
	}
}

// strip removes copies of an object in its metadata, and literal values of environment variables.
func strip(o map[string]any) {
	unstructured.RemoveNestedField(o, "metadata", "managedFields")
	unstructured.RemoveNestedField(o, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
	environment(o)
}

func environment(v any) {
	switch x := v.(type) {
	case map[string]any:
		for key, e := range x {
			if list, is := e.([]any); is && key == "env" {
				for _, one := range list {
					if m, is := one.(map[string]any); is && m["value"] != nil {
						m["value"] = redacted
					}
				}
			}
			environment(e)
		}
	case []any:
		for _, e := range x {
			environment(e)
		}
	}
}

const redacted = "REDACTED"

// credentials match text that looks like a credential. Group 1 is kept, the rest replaced. Quotes may be escaped. A
// value in quotes does not begin with a space: the quote would be the end of a text before.
var credentials = []*regexp.Regexp{
	regexp.MustCompile(`()eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?`), // a JSON Web Token
	regexp.MustCompile(`(?s)()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic) +)[A-Za-z0-9+/=._~-]{8,}`),
	regexp.MustCompile(`(?i)(\b[a-z_-]*(?:password|passwd|token|secret|api_?key|access_key|client-key-data)` +
		`\\*["']?[:=] *)(?:\\+"[^"\\\s](?:[^"\\\n]|\\+[^"\\\n])*\\+"|"(?:[^"\\\s]|\\[^\n])(?:[^"\\\n]|\\.)*"|` +
		`'(?:[^'\s]|'')(?:[^'\n]|'')*'|\\*["']?[^\s"',}]+)`),
	regexp.MustCompile(`(?im)(^\s*(?:secret|aws_access_key|credentials|password|token)[ \t]+).*$`), // of the Corefile
}

// Redact replaces what looks like a credential.
func Redact(text []byte) []byte {
	for _, c := range credentials {
		text = c.ReplaceAll(text, []byte("${1}"+redacted))
	}
	return text
}

// Failure turns a report that could not be made into a file.
func Failure(err error) []byte { return []byte(report.Printable(err.Error())) }
