package authority

import (
	"errors"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
)

// notifyInterval is how often the serial is compared. Changes within it share one NOTIFY.
const notifyInterval = time.Second

// Notify calls send for each zone of a plugin when the serial has changed (RFC 1996), until stop is closed. A secondary
// that no NOTIFY reaches learns of the change at its next SOA refresh. serial returns false while there is nothing to
// transfer. The first of failures in a row is logged.
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
		var errs []error
		for _, zone := range zones {
			errs = append(errs, send(zone))
		}
		err := errors.Join(errs...)
		if err != nil && !failing {
			log.Warningf("%v", err)
		}
		failing = err != nil
	}
}
