package authority

import (
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// notifyInterval is how often the serial is compared. Changes within it share one NOTIFY.
const notifyInterval = time.Second

// Notify has send tell the secondaries of each zone of a plugin that its serial changed (RFC 1996), until stop is
// closed. Those that it does not reach find out when the SOA's refresh is over. serial reports false while there is
// nothing to transfer.
func Notify(
	plugin string, zones []string, serial func() (uint32, bool), send func(zone string) error, stop <-chan struct{},
) {
	log := clog.NewWithPlugin(plugin)
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
		current, ok := serial()
		if !ok || current == sent {
			continue
		}
		sent = current
		for _, zone := range zones {
			err := send(zone)
			if err != nil && !failing {
				log.Warningf("%v", err)
			}
			failing = err != nil
		}
	}
}
