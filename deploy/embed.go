// Package deploy embeds the manifests that kubectl-clusterset applies. They are the files that the READMEs of its
// folders tell users to apply.
package deploy

import (
	"embed"
	"regexp"
)

// Manifests are the kustomizations of this folder, by their paths.
//
//go:embed crds/*.yaml crds/*/*.yaml hub/*.yaml hub/*/*.yaml member/*.yaml member/dnsendpoint/*.yaml
//go:embed coredns/kustomization.yaml coredns/binding.yaml coredns/role/*.yaml coredns/beside/*
var Manifests embed.FS

// The names of the images, without a tag.
const (
	Controller = "ghcr.io/clusterset-dns/clusterset-controller"
	CoreDNS    = "ghcr.io/clusterset-dns/coredns"
)

var (
	tag     = regexp.MustCompile(regexp.QuoteMeta(Controller) + `:(\S+)`)
	release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)
)

// Version returns the release that the manifests name (make set-version).
func Version() string {
	text, _ := Manifests.ReadFile("member/deployment.yaml") // it is embedded
	return string(tag.FindSubmatch(text)[1])
}

// Image returns the image NAME:VERSION of a release, such as Image(Controller, "v0.1.0"), and "" for another version,
// such as v0.1.0-3-gabc1234 of git describe: nobody publishes images of that.
func Image(name, version string) string {
	if !release.MatchString(version) {
		return ""
	}
	return name + ":" + version
}
