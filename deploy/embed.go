// Package deploy embeds the manifests that kubectl-clusterset applies. They are the files that the READMEs of its
// folders tell users to apply.
package deploy

import "embed"

// Manifests are the kustomizations of this folder, by their paths.
//
//go:embed crds/*.yaml crds/*/*.yaml hub/*.yaml hub/*/*.yaml member/*.yaml coredns/kustomization.yaml coredns/binding.yaml coredns/role/*.yaml coredns/beside/*
var Manifests embed.FS
