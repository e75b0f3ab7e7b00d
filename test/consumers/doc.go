// Package consumers connects the control planes of meshes and gateways, and Prometheus, as their authors ship them, to
// a clusterset, and compares what they would send traffic to, or scrape, with what is exported. make consumers builds
// them, each from a module of its own (istio, envoygateway, prometheus), runs the tests, as root, and writes
// docs/consumers.md.
package consumers
