package main

import clientfeatures "k8s.io/client-go/features"

// Caches are filled by one list of each kind. By client-go's default an API server streams the objects one by one, each with its own
// frame, and tells the end of them by a bookmark, which a busy one sends late. An agent that starts has changes to serve within seconds
// (DESIGN §7).
func init() { clientfeatures.ReplaceFeatureGates(listing{clientfeatures.FeatureGates()}) }

type listing struct{ clientfeatures.Gates }

// Enabled is clientfeatures.Gates'.
func (l listing) Enabled(f clientfeatures.Feature) bool {
	return f != clientfeatures.WatchListClient && l.Gates.Enabled(f)
}
