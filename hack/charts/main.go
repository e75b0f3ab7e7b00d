// Command charts writes the templates and CRDs of charts/ from the kustomizations of deploy/: the same objects, with
// values in the places where users differ. make generate runs it in the root of the repository.
//
// Chart.yaml, values.yaml, values.schema.json and the helpers are written by hand.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

// chart is one of charts/.
type chart struct {
	name  string
	crds  string // the folder of deploy/ that has them
	files []file
}

// file is one template: the objects of a folder of deploy/ which keep selects, and after change.
type file struct {
	name, folder string
	condition    string // of the whole file, or ""
	loop         bool   // once for each of $.Values.members
	keep         func(object) bool
	change       func(t *text, o object) (condition string)
}

// The namespaces of deploy/.
const (
	systemNamespace = "clusterset-system"
	dnsNamespace    = "clusterset-dns"
	clusterSet      = "clusterset"
)

var charts = []chart{
	{name: "clusterset-hub", crds: "hub", files: []file{
		{name: "policies", folder: "hub", condition: "$.Values.shared", keep: not("CustomResourceDefinition")},
		{name: "clusterset", folder: "hub/clusterset", change: hubObject},
		{name: "controller", folder: "hub/controller", keep: not("Namespace"), change: hubObject},
		{name: "members", folder: "hub/member", loop: true, change: hubObject},
		{name: "network-policy", folder: "hub/network-policy", condition: "$.Values.networkPolicy.enabled"},
		{name: "monitoring", folder: "monitoring/hub", condition: "$.Values.monitoring.enabled", change: monitor},
	}},
	{name: "clusterset-member", crds: "member", files: []file{
		{
			name:   "policies",
			folder: "member",
			keep:   only("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
		},
		{name: "agent", folder: "member", change: memberObject, keep: not("CustomResourceDefinition", "Namespace",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")},
		{name: "dnsendpoint", folder: "member/dnsendpoint", condition: "$.Values.dnsEndpointZone"},
		{name: "network-policy", folder: "member/network-policy", condition: "$.Values.networkPolicy.enabled"},
		{name: "monitoring", folder: "monitoring/agent", condition: "$.Values.monitoring.enabled", change: monitor},
		{name: "dashboard", folder: "monitoring/grafana", condition: "$.Values.monitoring.dashboard", change: monitor},
	}},
	{name: "clusterset-dns", crds: "crds", files: []file{
		{name: "dns", folder: "coredns/beside", keep: not("Namespace"), change: dnsObject},
		{name: "network-policy", folder: "coredns/network-policy", condition: "$.Values.networkPolicy.enabled"},
		{name: "monitoring", folder: "monitoring/coredns", condition: "$.Values.monitoring.enabled",
			keep: func(o object) bool { return name(o) != "clusterset-coredns" || o["kind"] != "PodMonitor" },
			change: func(t *text, o object) string {
				at(o, "metadata")["namespace"] = dnsNamespace // without an agent, there is no clusterset-system
				return monitor(t, o)
			}},
	}},
}

func main() {
	for _, c := range charts {
		if err := c.write(); err != nil {
			fmt.Fprintf(os.Stderr, "charts: %s: %v\n", c.name, err)
			os.Exit(1)
		}
	}
}

// write replaces what was generated before.
func (c chart) write() error {
	dir := filepath.Join("charts", c.name)
	for _, pattern := range []string{"templates/*.yaml", "crds/*.yaml"} {
		old, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range old {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for _, sub := range []string{"templates", "crds"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	objects, err := build(c.crds)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o["kind"] != "CustomResourceDefinition" {
			continue
		}
		out, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, "crds", name(o)+".yaml")
		if err := os.WriteFile(path, append(head(c.crds), out...), 0o644); err != nil {
			return err
		}
	}
	for _, f := range c.files {
		out, err := f.render()
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "templates", f.name+".yaml"), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func head(folder string) []byte {
	return fmt.Appendf(nil, "# Code generated from deploy/%s by make generate. DO NOT EDIT.\n", folder)
}

// build returns what kubectl apply -k deploy/FOLDER applies.
func build(folder string) ([]object, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join("deploy", folder))
	if err != nil {
		return nil, err
	}
	var out []object
	for _, r := range built.Resources() {
		o, err := r.Map()
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func (f file) render() ([]byte, error) {
	objects, err := build(f.folder)
	if err != nil {
		return nil, err
	}
	out := string(head(f.folder))
	if f.condition != "" {
		out += "{{- if " + f.condition + " }}\n"
	}
	if f.loop {
		out += "{{- range $id := $.Values.members }}\n"
	}
	for _, o := range objects {
		if f.keep != nil && !f.keep(o) {
			continue
		}
		t := &text{}
		condition := ""
		if f.change != nil {
			condition = f.change(t, o)
		}
		t.everywhere(o)
		body, err := t.yaml(o)
		if err != nil {
			return nil, err
		}
		if condition != "" {
			body = "{{- if " + condition + " }}\n---\n" + body + "{{- end }}\n"
		} else {
			body = "---\n" + body
		}
		out += body
	}
	if f.loop {
		out += "{{- end }}\n"
	}
	if f.condition != "" {
		out += "{{- end }}\n"
	}
	return []byte(out), nil
}

func only(kinds ...string) func(object) bool {
	return func(o object) bool { return slices.Contains(kinds, o["kind"].(string)) }
}

func not(kinds ...string) func(object) bool {
	return func(o object) bool { return !only(kinds...)(o) }
}

// at returns the map at a path of keys, and makes it if it is missing.
func at(o object, path ...string) object {
	for _, key := range path {
		next, ok := o[key].(object)
		if !ok {
			next = object{}
			o[key] = next
		}
		o = next
	}
	return o
}

func name(o object) string { return at(o, "metadata")["name"].(string) }

// hubObject puts the ClusterSet's name where deploy/hub has "clusterset".
func hubObject(t *text, o object) (condition string) {
	ofSystem := at(o, "metadata")["namespace"] == systemNamespace
	t.each(o, func(_, s string) string {
		switch {
		case s == clusterSet:
			return t.inline(`{{ $.Values.clusterSet.name | quote }}`)
		case s == "--hub-namespace="+clusterSet:
			return t.inline(`--hub-namespace={{ $.Values.clusterSet.name }}`)
		case s == "CLUSTER-ID":
			return t.inline(`{{ $id | quote }}`)
		}
		if strings.Contains(s, "CLUSTER-ID") {
			return strings.ReplaceAll(s, "CLUSTER-ID", t.inline(`{{ $id }}`))
		}
		return s
	})
	switch o["kind"] {
	case "ClusterSet":
		o["spec"] = t.line(func(indent, key string) string {
			return indent + key + ": {{- toYaml $.Values.clusterSet.spec | nindent " + width(indent, 2) + " }}\n"
		})
	case "Deployment":
		at(o, "metadata")["name"] = t.inline(`{{ include "clusterset-hub.deployment" $ }}`)
		workload(t, o)
	case "PodDisruptionBudget":
		at(o, "metadata")["name"] = t.inline(`{{ include "clusterset-hub.deployment" $ }}`)
		return "$.Values.podDisruptionBudget.enabled"
	default:
		if ofSystem {
			return "$.Values.shared"
		}
	}
	return ""
}

func memberObject(t *text, o object) (condition string) {
	switch o["kind"] {
	case "Deployment":
		container := workload(t, o)
		args := container["args"].([]any)
		for i, a := range args {
			if a == "--hub-namespace="+clusterSet {
				args[i] = t.inline(`--hub-namespace={{ $.Values.hubNamespace }}`)
			}
		}
		id := t.line(func(indent, _ string) string {
			return "{{- with $.Values.clusterID }}\n" +
				indent + "- {{ printf \"--cluster-id=%s\" . | quote }}\n{{- end }}\n"
		})
		zone := t.line(func(indent, _ string) string {
			return "{{- with $.Values.dnsEndpointZone }}\n" +
				indent + "- {{ printf \"--dnsendpoint-zone=%s\" . | quote }}\n{{- end }}\n"
		})
		container["args"] = slices.Insert(args, len(args)-1, any(id), any(zone))
	case "ClusterRole":
		const label = "rbac.authorization.k8s.io/aggregate-to-edit"
		if labels := at(o, "metadata", "labels"); labels[label] != nil {
			delete(labels, label)
			labels[t.line(func(indent, _ string) string {
				return "{{- if ne (toString $.Values.editorsExport) \"false\" }}\n" +
					indent + label + ": \"true\"\n{{- end }}\n"
			})] = ""
		}
	}
	return ofPods(t, o)
}

// ofPods is for what comes with a Deployment.
func ofPods(t *text, o object) (condition string) {
	switch o["kind"] {
	case "PodDisruptionBudget":
		return "$.Values.podDisruptionBudget.enabled"
	case "ResourceQuota":
		expressions := at(o, "spec", "scopeSelector")["matchExpressions"].([]any)
		expressions[0].(object)["values"] = []any{t.inline(`{{ $.Values.priorityClassName | quote }}`)}
		return "$.Values.priorityClassName"
	}
	return ""
}

func dnsObject(t *text, o object) (condition string) {
	switch o["kind"] {
	case "Deployment":
		// An entry of the value replaces ours: two of one name are refused by server-side apply.
		delete(at(o, "spec", "template", "spec")["containers"].([]any)[0].(object), "env")
		workload(t, o)
	case "Service":
		at(o, "spec")["clusterIP"] = t.value("service.clusterIP")
	case "ConfigMap":
		at(o, "data")["Corefile"] = t.line(func(indent, key string) string {
			return indent + key + ": |\n" + indent + "  {{- $.Values.corefile | nindent " + width(indent, 2) + " }}\n"
		})
	}
	return ofPods(t, o)
}

// workload puts values into a Deployment, and returns its container. The last argument is a place for more of them.
func workload(t *text, o object) object {
	at(o, "spec")["replicas"] = t.inline(`{{ $.Values.replicas }}`)
	at(o, "spec", "template", "metadata")["annotations"] = t.value("podAnnotations")
	pod := at(o, "spec", "template", "spec")
	for _, key := range []string{"imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"} {
		pod[key] = t.value(key)
	}
	container := pod["containers"].([]any)[0].(object)
	container["image"] = t.inline(`{{ include "image" $ | quote }}`)
	container["imagePullPolicy"] = t.value("image.pullPolicy")
	container["resources"] = t.value("resources")
	if own, ok := container["env"].([]any); ok {
		container["env"] = append(own, t.more("env"))
	} else {
		container["env"] = t.value("env")
	}
	container["args"] = append(container["args"].([]any), t.more("extraArgs"))
	return container
}

// monitor adds the labels that a Prometheus or a Grafana looks for.
func monitor(t *text, o object) string {
	labels := at(o, "metadata", "labels")
	if len(labels) > 0 {
		labels[t.line(func(indent, _ string) string {
			return "{{- with $.Values.monitoring.labels }}\n" + indent + "{{- toYaml . | nindent " + width(indent, 0) +
				" }}\n{{- end }}\n"
		})] = ""
		return ""
	}
	at(o, "metadata")["labels"] = t.value("monitoring.labels")
	return ""
}

// text is the text of one object, in which words stand for what is put there after everything else is escaped.
type text struct {
	inlines []string
	lines   []func(indent, key string) string
}

// inline returns a word for a template within a line.
func (t *text) inline(template string) string {
	t.inlines = append(t.inlines, template)
	return fmt.Sprintf("INLINE%dINLINE", len(t.inlines)-1)
}

// line returns a word for a template in place of the word's line, by its indentation and its key, if it has one.
func (t *text) line(template func(indent, key string) string) string {
	t.lines = append(t.lines, template)
	return fmt.Sprintf("LINE%dLINE", len(t.lines)-1)
}

// value returns a word for a key with a value of values.yaml, or for nothing if that is empty.
func (t *text) value(path string) string {
	return t.line(func(indent, key string) string {
		return "{{- with $.Values." + path + " }}\n" + indent + key + ":\n" +
			indent + "  {{- toYaml . | nindent " + width(indent, 2) + " }}\n{{- end }}\n"
	})
}

// more returns a line that adds the items of a value to a list.
func (t *text) more(path string) string {
	return t.line(func(indent, _ string) string {
		return "{{- with $.Values." + path + " }}\n" +
			indent + "{{- toYaml . | nindent " + width(indent, 0) + " }}\n{{- end }}\n"
	})
}

func width(indent string, more int) string { return strconv.Itoa(len(indent) + more) }

// each changes every string of an object, by the key that it or its list stands at.
func (t *text) each(o object, change func(key, s string) string) { walk("", o, change) }

func walk(key string, value any, change func(key, s string) string) any {
	switch x := value.(type) {
	case object:
		for k, v := range x {
			x[k] = walk(k, v, change)
		}
	case []any:
		for i, v := range x {
			x[i] = walk(key, v, change)
		}
	case string:
		return change(key, x)
	}
	return value
}

// everywhere puts the chart's version where deploy/ has its own.
func (t *text) everywhere(o object) {
	t.each(o, func(key, s string) string {
		if key == "app.kubernetes.io/version" {
			return t.inline(`{{ $.Chart.AppVersion | quote }}`)
		}
		return s
	})
}

var (
	inlineWord = regexp.MustCompile(`INLINE(\d+)INLINE`)
	lineWord   = regexp.MustCompile(`^( *)(?:- )?(?:([\w-]+): )?LINE(\d+)LINE(?:: "")?\n$`)
)

// yaml marshals an object, escapes what Helm would take for a template, and puts the templates in.
func (t *text) yaml(o object) (string, error) {
	marshaled, err := yaml.Marshal(o)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(string(marshaled)) {
		if m := lineWord.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[3])
			out.WriteString(t.lines[n](m[1], m[2]))
			continue
		}
		if strings.Contains(line, "LINE") && regexp.MustCompile(`\bLINE\d+LINE`).MatchString(line) {
			return "", fmt.Errorf("a word for a line is not alone in %q", line)
		}
		out.WriteString(
			inlineWord.ReplaceAllStringFunc(strings.ReplaceAll(line, "{{", `{{ "{{" }}`), func(word string) string {
				n, _ := strconv.Atoi(inlineWord.FindStringSubmatch(word)[1])
				return t.inlines[n]
			}),
		)
	}
	return out.String(), nil
}
