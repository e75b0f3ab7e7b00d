package dns

import (
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Print writes the objects of a plan and its changes as a unified diff. verb is what happens to the objects.
func (p *Plan) Print(out io.Writer, verb string) error {
	for _, o := range p.Objects {
		fmt.Fprintf(out, "%s %s\n", verb, cluster.Title(o))
	}
	said := strings.Join(p.Notes, "") + p.ByHand
	for _, c := range p.changes() {
		text, err := c.diff()
		if err != nil {
			return err
		}
		said += text
		fmt.Fprint(out, strings.TrimSuffix(text, " ")) // of a last line without a break
	}
	for _, note := range p.Notes {
		report.Note(out, "!", note, "")
	}
	if strings.Contains(said, noAddress) {
		report.Note(out, "!", noAddress+" stands for the address of our Service, and is replaced when that exists", "")
	}
	if p.ByHand != "" { // it may have a block
		fmt.Fprintf(out, "%s one step is yours: %s\n", report.Paint(out, "!", "!"), strings.TrimSpace(p.ByHand))
	}
	return nil
}

// diff returns a unified diff of the YAML of both objects, without what only the API server writes.
func (c *Change) diff() (string, error) {
	before, err := text(c.Before)
	if err != nil {
		return "", err
	}
	after, err := text(c.After)
	if err != nil {
		return "", err
	}
	name := cluster.Title(c.object())
	return difflib.GetUnifiedDiffString(
		difflib.UnifiedDiff{A: lines(before), B: lines(after), FromFile: name + " (now)", ToFile: name, Context: 3})
}

func lines(text string) []string {
	return strings.SplitAfter(strings.TrimSuffix(text, "\n")+"\n", "\n")
}

func text(o client.Object) (string, error) {
	if o == nil {
		return "", nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.DeepCopyObject())
	if err != nil {
		return "", err
	}
	if gvk, err := apiutil.GVKForObject(o, cluster.Scheme()); err == nil {
		content["apiVersion"], content["kind"] = gvk.ToAPIVersionAndKind()
	}
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	unstructured.RemoveNestedField(content, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
	delete(content, "status")
	out, err := yaml.Marshal(content)
	return string(out), err
}
