package multicluster

import (
	"time"

	"github.com/coredns/coredns/plugin/pkg/log"
)

// notifyInterval is how often the serial is compared. Changes within it share one NOTIFY.
const notifyInterval = time.Second

// notify has send tell the secondaries of each zone that its serial changed (RFC 1996), until stop
// is closed. Those that it does not reach find out when the SOA's refresh is over.
func (m *Multicluster) notify(send func(zone string) error, stop <-chan struct{}) {
	tick := time.NewTicker(notifyInterval)
	defer tick.Stop()
	var sent uint32
	failing := false
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		serial := m.source.Index().Serial()
		if !m.source.Synced() || serial == sent {
			continue
		}
		sent = serial
		for _, zone := range m.origins {
			err := send(zone)
			if err != nil && !failing {
				log.Warningf("plugin/%s: %v", pluginName, err)
			}
			failing = err != nil
		}
	}
}
