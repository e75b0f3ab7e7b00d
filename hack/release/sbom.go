package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
)

// The part of CycloneDX 1.6 that is written: https://cyclonedx.org/docs/1.6/json/.
type (
	bom struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Properties []property `json:"properties,omitempty"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// sbom returns the software bill of materials of a Go program: the modules that are linked into it, and Go's own
// library, as the program itself records them.
func sbom(name, version, binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	program := component{
		Type: "application", Name: name, Version: version, Ref: purl(info.Main.Path, version) + "#cmd/" + name,
		PURL: purl(info.Main.Path, version) + "#cmd/" + name,
	}
	out := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: metadata{program}}
	depends := dependency{Ref: program.Ref}
	for _, m := range modules {
		c := component{Type: "library", Name: m.Path, Version: m.Version, Ref: purl(m.Path, m.Version)}
		c.PURL = c.Ref
		if m.Sum != "" {
			c.Properties = []property{{"go.sum", m.Sum}}
		}
		out.Components = append(out.Components, c)
		depends.DependsOn = append(depends.DependsOn, c.Ref)
	}
	out.Dependencies = []dependency{depends}
	text, err := json.MarshalIndent(out, "", " ")
	return append(text, '\n'), err
}

func purl(module, version string) string { return "pkg:golang/" + module + "@" + version }
