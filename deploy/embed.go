// Package deploy holds the manifests that kubectl-clusterset applies, so that what it does and what the folders' READMEs say is the same.
package deploy

import "embed"

// Manifests are the kustomizations of this folder, by their paths.
//
//go:embed crds/*.yaml crds/*/*.yaml hub/*.yaml hub/*/*.yaml member/*.yaml coredns/kustomization.yaml coredns/binding.yaml coredns/role/*.yaml
var Manifests embed.FS
