package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/sources"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// network is what may be wrong with a member's network. All of it is mended in quiet.
type network struct {
	dark    bool // nothing there answers, as after a power cut
	cut     bool // it reaches no other member, and none reaches it
	blocked bool // a NetworkPolicy hides its agent
	mended  time.Time
}

// isDown returns whether a member was dark or cut within the time that a pass may take.
func (w *World) isDown(m *member) bool {
	return m.dark || m.cut || !m.mended.IsZero() && w.now.Sub(m.mended) < 2*time.Minute
}

// set changes what is wrong with a member's network.
func (w *World) set(m *member, to network) {
	to.mended = m.mended
	if m.dark || m.cut {
		to.mended = w.now
	}
	m.network = to
}

var errTimeout = errors.New("dial tcp: i/o timeout")

// home is the address of every member's own API server.
const home = "10.96.0.1:443"

// answersAt is where a member's agent answers.
func (w *World) answersAt(m *member) string {
	return fmt.Sprintf("10.%d.1.1:8082", slices.Index(w.members, m))
}

// owner returns the member that has an address, or nil (users.go: endpoints).
func (w *World) owner(a netip.Addr) *member {
	at := int(a.AsSlice()[1])
	if a.Is6() {
		at = int(a.As16()[3]) - 1
	}
	if at < 0 || at >= len(w.members) {
		return nil
	}
	return w.members[at]
}

// dialFrom returns kube.Env's Dial of an agent. It is called by many goroutines at once, while nothing else happens.
func (w *World) dialFrom(a *agent) func(context.Context, string, string) (net.Conn, error) {
	m := a.member
	return func(_ context.Context, _, address string) (net.Conn, error) {
		switch {
		case address == home && !a.cutOff.IsZero():
			return nil, errTimeout
		case address == home:
			return connection(""), nil
		}
		there := w.owner(netip.MustParseAddrPort(address).Addr())
		switch {
		case there == nil:
			return connection(""), nil
		case m.cut || there.cut || there.dark:
			return nil, errTimeout
		case address != w.answersAt(there) && !there.hidden:
			return connection(""), nil
		case there.blocked || address != w.answersAt(there):
			return nil, errTimeout
		case len(there.agents) == 0:
			return nil, syscall.ECONNREFUSED
		}
		return connection(sources.Greeting(there.id)), nil
	}
}

// connection returns a connection on which the other side writes text and closes.
func connection(text string) net.Conn {
	here, there := net.Pipe()
	go func() {
		_, _ = there.Write([]byte(text))
		there.Close()
	}()
	return here
}

func (w *World) goesDark(a *agent) {
	w.set(a.member, network{dark: w.chance(0.7), cut: a.cut, blocked: a.blocked})
	a.note("fault: %s is dark: %v", a.id, a.dark)
}

func (w *World) isCut(a *agent) {
	w.set(a.member, network{dark: a.dark, cut: w.chance(0.7), blocked: a.blocked})
	a.note("fault: the network of %s is cut: %v", a.id, a.cut)
}

func (w *World) isBlocked(a *agent) {
	w.set(a.member, network{dark: a.dark, cut: a.cut, blocked: w.chance(0.7)})
	a.note("fault: the port of %s is blocked: %v", a.id, a.blocked)
}

// watchReach: a member that answers is never taken for dead (F4).
func (w *World) watchReach(m *member, c *api.Write) {
	is, ok := c.New.(*coordinationv1.Lease)
	if !ok || is.Labels[liveness.LabelSource] == "" || reach.Read(is).State != reach.Unreachable {
		return
	}
	if was, ok := c.Old.(*coordinationv1.Lease); ok && reach.Read(was).State == reach.Unreachable {
		return
	}
	i := slices.IndexFunc(w.members, func(of *member) bool { return of.id == is.Labels[liveness.LabelSource] })
	if i < 0 || w.liar != nil && w.members[i] == w.liar.member {
		return
	}
	w.history.Events["(unreachable)"]++
	if there := w.members[i]; !w.isDown(there) && !w.isDown(m) {
		w.fail("F4: %s takes %s for dead, and it answers", m.id, there.id)
	}
}

// checkReach: in quiet every member reaches every other one.
func (w *World) checkReach() error {
	var errs []error
	for _, m := range w.honest() {
		for _, lease := range all[*coordinationv1.Lease](m.server, api.Lease) {
			if r := reach.Read(lease); r.State == reach.Unreachable {
				errs = append(
					errs,
					fmt.Errorf("%s does not reach %s since %v", m.id, lease.Labels[liveness.LabelSource],
						r.Since),
				)
			}
		}
	}
	return errors.Join(errs...)
}
