package multicluster

// Ready implements ready.Readiness for all stanzas together.
func (m *Multicluster) Ready() bool { return m.load.Ready() }
