package resolution

import (
	"errors"
	"fmt"
	"slices"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// invariants are true of every result, however it came about. They hold the model to the text, too.
func invariants(exports []clusterset.Export, m conflict.Merged) error {
	var problems []error
	if !slices.IsSorted(m.Clusters) {
		problems = append(problems, fmt.Errorf("clusters are not sorted: %q", m.Clusters))
	}
	if len(exports) > 0 && len(m.Families) == 0 {
		problems = append(problems, errors.New("C7: no families, want the oldest's at least"))
	}
	problems = append(problems, distinct(m.Ports, m.Type), served(m))
	for _, export := range exports {
		problems = append(problems, exposed(export, m))
	}
	if len(exports) > 0 {
		problems = append(problems, undisturbed(precedence(exports)[0], m))
	}
	return errors.Join(problems...)
}

// distinct is what core/v1 demands of a Service's ports; of a headless one, numbers may come twice (C3).
func distinct(list []clusterset.Port, kind mcsv1beta1.ServiceImportType) error {
	var problems []error
	for i, port := range list {
		if port.Name == "" && len(list) > 1 {
			problems = append(
				problems,
				fmt.Errorf("C3: %s/%d has no name beside other ports", port.Protocol, port.Number),
			)
		}
		for _, other := range list[:i] {
			if other.Name == port.Name {
				problems = append(problems, fmt.Errorf("C3: two ports are called %q", port.Name))
			}
			if other.Protocol == port.Protocol && other.Number == port.Number && kind != mcsv1beta1.Headless {
				problems = append(problems, fmt.Errorf("C3: two ports are %s/%d", port.Protocol, port.Number))
			}
		}
	}
	return errors.Join(problems...)
}

// served demands a cluster behind each port.
func served(m conflict.Merged) error {
	var problems []error
	for _, port := range m.Ports {
		clusters := 0
		for _, names := range m.Names {
			for _, name := range names {
				if name == port.Name {
					clusters++
				}
			}
		}
		if clusters == 0 {
			problems = append(problems, fmt.Errorf("C4: no cluster serves port %q", port.Name))
		}
	}
	return errors.Join(problems...)
}

// exposed lets a cluster serve a port of the union only with a port of the same protocol and, behind a VIP, number.
func exposed(export clusterset.Export, m conflict.Merged) error {
	names, ok := m.Names[export.Cluster]
	if !ok {
		return fmt.Errorf("C4: names do not tell of cluster %q", export.Cluster)
	}
	var problems []error
	for own, name := range names {
		i := slices.IndexFunc(
			export.Ports,
			func(p clusterset.Port) bool { return p.Protocol == own.Protocol && p.Number == own.Number },
		)
		j := slices.IndexFunc(m.Ports, func(p clusterset.Port) bool { return p.Name == name })
		switch {
		case i < 0:
			problems = append(
				problems,
				fmt.Errorf("C4: cluster %q has no port %d/%s", export.Cluster, own.Number, own.Protocol),
			)
		case j < 0:
			problems = append(
				problems,
				fmt.Errorf("C4: cluster %q serves port %q, which the union does not have", export.Cluster, name),
			)
		case export.Ports[i].Protocol != m.Ports[j].Protocol ||
			export.Ports[i].Number != m.Ports[j].Number && m.Type != mcsv1beta1.Headless:
			problems = append(
				problems,
				fmt.Errorf(
					"C4: port %d/%s of cluster %q serves %q, another port",
					own.Number,
					own.Protocol,
					export.Cluster,
					name,
				),
			)
		}
	}
	return errors.Join(problems...)
}

// undisturbed is C9 within one result: whatever younger clusters export, the oldest's ports stay as they are and
// serve. Only a port
// without a name gets one.
func undisturbed(oldest clusterset.Export, m conflict.Merged) error {
	var problems []error
	for i, port := range oldest.Ports {
		if i >= len(m.Ports) {
			problems = append(problems, fmt.Errorf("C9: the oldest's port %q is gone", port.Name))
			continue
		}
		got := m.Ports[i]
		if port.Name == "" {
			port.Name = got.Name
		}
		if got != port || m.Names[oldest.Cluster][oldest.Ports[i].Key()] != got.Name {
			problems = append(problems, fmt.Errorf("C9: the oldest's port %+v became %+v", oldest.Ports[i], got))
		}
	}
	return errors.Join(problems...)
}
