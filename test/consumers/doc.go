// Package consumers connects the control planes of meshes and gateways, as their authors ship them, to a clusterset,
// and compares what they would send traffic to with what is exported. make consumers builds them, each from a module
// of its own (istio, envoygateway), runs the tests, as root, and writes docs/consumers.md.
package consumers
