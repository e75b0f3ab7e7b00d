//go:build databases

package databases

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// limit is far more than anything takes: machines are shared.
const limit = 4 * time.Minute

// gone is how long a cluster that is lost may have names (SPEC T1).
const gone = 65 * time.Second

// logs has what containers write.
var logs, _ = os.MkdirTemp("", "databases-logs-")

// database is one of the page's, with a client of it.
type database struct {
	page    string // its file
	section string // of the page
	name    string // of its StatefulSet, its Service and its container
	version string
	// write stores one more, and returns once the database has confirmed it. It runs in a cluster.
	write func(ctx context.Context, in *cluster, n int) error
	// read returns the numbers of those that a cluster's own member has, each after an n or not.
	read func(ctx context.Context, in *cluster) ([]string, error)
	// leader returns the cluster whose member leads, or an error unless all of these have a member that
	// takes part, by what the database itself reports.
	leader func(ctx context.Context, of []*cluster) (id string, err error)
}

// played is one database's run.
type played struct {
	*testing.T
	database
	w     *world
	ctx   context.Context
	began time.Time
	log   []string
}

// play forms a database, replaces its Pods, loses the cluster that leads, and restores it.
func play(t *testing.T, d database) {
	p := &played{T: t, database: d, w: clusters(t), ctx: t.Context()}
	recipe := readPage(t, d.page).section(t, d.section)
	p.began = time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			p.fail()
		}
		for _, c := range p.w.clusters {
			_, err := c.Cluster.Kubectl(context.Background(), "", "-n", namespace, "delete", "statefulset", d.name)
			if err != nil {
				t.Error(err)
			}
		}
	})
	err := p.w.each(func(c *cluster) error { return c.run(p.ctx, recipe, d.name+".yaml") })
	if err != nil {
		t.Fatal(err)
	}
	p.say("StatefulSet %s, Service and ServiceExport applied in %s", d.name, ids(p.w.clusters))
	leader := p.whole(p.w.clusters)
	formed := time.Since(p.began)
	p.say("formed: %s have a member each, %s leads", ids(p.w.clusters), leader)

	p.domainsOfClusters()

	w := p.writing(p.w.clusters[0])
	var replaced time.Duration
	for _, c := range p.w.clusters {
		before, at := p.address(c), time.Now()
		w.more(5)
		if _, err := c.Cluster.Kubectl(p.ctx, "", "-n", namespace, "delete", "pod", d.name+"-0"); err != nil {
			t.Fatal(err)
		}
		p.eventually("another Pod", func() error {
			if now := p.address(c); now == before || now == "" {
				return fmt.Errorf("its address is %q", now)
			}
			return nil
		})
		p.whole(p.w.clusters)
		w.more(5)
		gap := w.gap(at)
		replaced = max(replaced, gap)
		p.say("Pod %s-0 of %s replaced: %s is %s now, whole after %s, %s without writes",
			d.name, c.ID, before, p.address(c), seconds(time.Since(at)), seconds(gap))
	}
	w.stop()

	lost := p.find(p.whole(p.w.clusters))
	var others []*cluster
	for _, c := range p.w.clusters {
		if c != lost {
			others = append(others, c)
		}
	}
	w = p.writing(others[0])
	w.more(10)
	cut := time.Now()
	if err := p.w.lose(lost); err != nil {
		t.Fatal(err)
	}
	p.say("cluster %s lost, which led: Pods, agent, CoreDNS, control plane", lost.ID)
	for _, c := range others {
		p.within(time.Until(cut.Add(gone)), "the names of "+lost.ID+" are gone in "+c.ID, func() error {
			found, err := c.lookup(p.ctx, d.host(lost))
			if none := new(net.DNSError); errors.As(err, &none) && none.IsNotFound {
				return nil
			}
			return fmt.Errorf("%s is %v, %v", d.host(lost), found, err)
		})
	}
	p.say("its names are gone in %s", ids(others))
	leader = p.whole(others)
	w.more(10)
	loss := w.gap(cut)
	p.say("%s leads, and writes go on: %s without writes", leader, seconds(loss))

	if err := p.w.restore(context.WithoutCancel(p.ctx), lost); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	p.say("cluster %s has power again: its control plane, agent and CoreDNS have started", lost.ID)
	leader = p.whole(p.w.clusters)
	returned := time.Since(back)
	w.more(10)
	gap := w.gap(back)
	p.say("%s has its member again, at %s; %s leads; %s without writes",
		lost.ID, p.address(lost), leader, seconds(gap))
	w.stop()
	for _, c := range p.w.clusters {
		p.eventually("every confirmed write is in "+c.ID, func() error {
			has, err := d.read(p.ctx, c)
			missing := maps.Clone(confirmed[d.name])
			for _, n := range has {
				delete(missing, strings.TrimPrefix(n, "n"))
			}
			if err == nil && len(missing) > 0 {
				err = fmt.Errorf("it lacks %v", slices.Sorted(maps.Keys(missing)))
			}
			return err
		})
	}
	p.say("each member has all %d confirmed writes", len(confirmed[d.name]))
	record(
		t,
		d.page,
		d.section,
		fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %s |", d.section, d.version, seconds(formed),
			"writes after "+seconds(replaced), "writes after "+seconds(loss), "whole after "+seconds(returned),
			fmt.Sprintf("%s; return: %s", seconds(max(replaced, loss)), seconds(gap))),
		p.log,
	)
}

// say adds a line to the log.
func (p *played) say(format string, args ...any) {
	p.Helper()
	line := fmt.Sprintf("%6.1f s  ", time.Since(p.began).Seconds()) + fmt.Sprintf(format, args...)
	p.log = append(p.log, line)
	p.Log(line)
}

// fail shows what a failure may come from.
func (p *played) fail() {
	for _, c := range p.w.clusters {
		for _, container := range []string{p.name, "wait", "sentinel"} {
			if text, err := os.ReadFile(fmt.Sprintf("%s/%s-0.%s.%s.log", logs, p.name, c.ID, container)); err == nil {
				p.Logf("%s of %s:\n%s", container, c.ID, text[max(0, len(text)-6000):])
			}
		}
		agent := c.Agent.Log()
		p.Logf("agent of %s:\n%s", c.ID, agent[max(0, len(agent)-2000):])
	}
}

func (p *played) eventually(what string, ask func() error) {
	p.Helper()
	p.within(limit, what, ask)
}

func (p *played) within(limit time.Duration, what string, ask func() error) {
	p.Helper()
	if err := lab.Until(p.ctx, limit, what, ask); err != nil {
		p.Fatal(err)
	}
}

// whole waits until these clusters have all members that the database is to have, and returns who leads.
func (p *played) whole(of []*cluster) (leader string) {
	p.Helper()
	p.eventually("members in "+ids(of), func() (err error) {
		ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
		defer cancel()
		leader, err = p.leader(ctx, of)
		if err == nil && p.find(leader) == nil {
			err = fmt.Errorf("%q leads", leader)
		}
		return err
	})
	return leader
}

func (p *played) find(id string) *cluster {
	for _, c := range p.w.clusters {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// address is that of a cluster's Pod, or "".
func (p *played) address(c *cluster) string {
	if pod := c.kubelet.pod(p.name + "-0"); pod != nil {
		return pod.address
	}
	return ""
}

// service is the name of all members.
func (d *database) service() string { return d.name + "." + namespace + ".svc.clusterset.local" }

// host is the name of a cluster's member.
func (d *database) host(c *cluster) string { return d.name + "-0." + c.ID + "." + d.service() }

// lookup asks the cluster's CoreDNS.
func (c *cluster) lookup(ctx context.Context, name string) ([]string, error) {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, c.dns()+":53")
	}}
	return resolver.LookupHost(ctx, name+".")
}

// dial connects to a name as a client in the cluster does: to its addresses, one after the other.
func (c *cluster) dial(ctx context.Context, name string, port int) (conn net.Conn, err error) {
	all, err := c.lookup(ctx, name)
	for _, address := range all {
		one := net.Dialer{Timeout: 300 * time.Millisecond}
		if conn, err = one.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", address, port)); err == nil {
			deadline, _ := ctx.Deadline()
			return conn, conn.SetDeadline(deadline)
		}
	}
	return nil, err
}

// writer writes one after the other, each as soon as the one before is over, twenty a second at most.
type writer struct {
	p    *played
	end  context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	acks []time.Time // under mu
	err  error       // of the last that failed, under mu
}

// written counts attempts, so that each has a number of its own.
var written int

// confirmed has the numbers of confirmed writes by database. A write that was given up may be there all the same.
var confirmed = map[string]map[string]bool{}

func (p *played) writing(in *cluster) *writer {
	ctx, end := context.WithCancel(p.ctx)
	w := &writer{p: p, end: end}
	if confirmed[p.name] == nil {
		confirmed[p.name] = map[string]bool{}
	}
	w.done.Go(func() {
		for ; ctx.Err() == nil; wait(ctx, 50*time.Millisecond) {
			written++
			one, cancel := context.WithTimeout(ctx, time.Second)
			err := p.write(one, in, written)
			cancel()
			w.mu.Lock()
			if err == nil {
				w.acks = append(w.acks, time.Now())
				confirmed[p.name][strconv.Itoa(written)] = true
			} else {
				w.err = err
			}
			w.mu.Unlock()
		}
	})
	p.Cleanup(w.stop)
	return w
}

func (w *writer) stop() {
	w.end()
	w.done.Wait()
}

// more waits until so many more writes are confirmed.
func (w *writer) more(n int) {
	w.p.Helper()
	w.mu.Lock()
	want := len(w.acks) + n
	w.mu.Unlock()
	w.p.eventually(fmt.Sprintf("%d more writes", n), func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.acks) < want {
			return fmt.Errorf("%d of %d: %w", len(w.acks), want, w.err)
		}
		return nil
	})
}

// gap returns the longest time between two confirmed writes since a moment, or the one that it fell into.
func (w *writer) gap(since time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.acks); i++ {
		if w.acks[i].After(since) {
			longest = max(longest, w.acks[i].Sub(w.acks[i-1]))
		}
	}
	return longest
}

func ids(of []*cluster) string {
	var out []string
	for _, c := range of {
		out = append(out, c.ID)
	}
	return strings.Join(out, ", ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// find returns what the first group of a pattern matches.
func find(t *testing.T, pattern, text string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%q does not match %s", text, pattern)
	}
	return m[1]
}

// overConn is an HTTP client of one connection.
func overConn(conn net.Conn) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
}
