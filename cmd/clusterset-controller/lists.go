package main

import clientfeatures "k8s.io/client-go/features"

// Caches are filled by one list of each kind. By client-go's default an API server streams the objects one by one and tells the end of them
// by a bookmark, for which it takes its time: with thousands of records, and other work to do, three times as long and more. An agent that
// starts has changes to serve within seconds (DESIGN §7).
func init() { clientfeatures.ReplaceFeatureGates(listing{clientfeatures.FeatureGates()}) }

type listing struct{ clientfeatures.Gates }

// Enabled is clientfeatures.Gates'.
func (l listing) Enabled(f clientfeatures.Feature) bool {
	return f != clientfeatures.WatchListClient && l.Gates.Enabled(f)
}
