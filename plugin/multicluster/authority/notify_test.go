package authority

import (
	"bytes"
	"errors"
	"log"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestL6AZoneThatIsNotNotifiedIsLogged once while it goes on, whatever becomes of other zones.
func TestL6AZoneThatIsNotNotifiedIsLogged(t *testing.T) {
	var out bytes.Buffer
	before := log.Writer()
	log.SetOutput(&out)
	defer log.SetOutput(before)
	synctest.Test(t, func(t *testing.T) {
		stop, changes := make(chan struct{}), uint32(0)
		serial := func() (uint32, bool) { changes++; return changes, true }
		send := func(zone string) error {
			if zone == "good." {
				return nil
			}
			return errors.New("no answer for " + zone)
		}
		go Notify("plugin", []string{"bad.", "worse.", "good."}, serial, send, stop)
		time.Sleep(5500 * time.Millisecond) // of the bubble: five changes
		close(stop)
		synctest.Wait()
	})
	for _, zone := range []string{"bad.", "worse."} {
		if n := strings.Count(out.String(), "no answer for "+zone); n != 1 {
			t.Errorf("%s is logged %d times:\n%s", zone, n, out.String())
		}
	}
}
