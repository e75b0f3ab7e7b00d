package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset-dns/test/soak/oracle"
)

// asker asks every name of every member twenty times a second, over UDP, and has every answer checked and kept.
type asker struct {
	w       *world
	partner *echo
	running sync.WaitGroup
	stop    context.CancelFunc
	ended   sync.Once

	mu sync.Mutex
	counts
	watchers map[int]func(oracle.Answer)
	next     int
}

// counts are what all the asking comes to.
type counts struct {
	asked      int
	answered   int
	wrong      int
	vipChanges int
	unanswered map[string]int // by reason
	stalled    int            // unanswered while the machine stood still
	took       spread         // of what was answered
	echo       spread
	stalls     int // of the machine, in sum and the longest
	still      time.Duration
	longest    time.Duration
}

func (c *counts) add(o *counts) {
	c.asked, c.answered, c.wrong, c.vipChanges, c.stalled = c.asked+o.asked, c.answered+o.answered, c.wrong+o.wrong,
		c.vipChanges+o.vipChanges, c.stalled+o.stalled
	if c.unanswered == nil {
		c.unanswered = map[string]int{}
	}
	for why, n := range o.unanswered {
		c.unanswered[why] += n
	}
	c.took.merge(&o.took)
	c.echo.merge(&o.echo)
	c.stalls, c.still, c.longest = c.stalls+o.stalls, c.still+o.still, max(c.longest, o.longest)
}

const every = time.Second / 20

func (w *world) ask(ctx context.Context) (*asker, error) {
	echo, err := startEcho(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	a := &asker{
		w:        w,
		partner:  echo,
		stop:     stop,
		counts:   counts{unanswered: map[string]int{}},
		watchers: map[int]func(oracle.Answer){},
	}
	for _, m := range w.members {
		for _, name := range names {
			a.running.Go(func() { a.keepAsking(ctx, m, name) })
		}
	}
	return a, nil
}

// end may be called twice.
func (a *asker) end() {
	a.ended.Do(func() {
		a.stop()
		a.running.Wait()
		if err := a.partner.end(); err != nil {
			a.w.tape.fail("the echo ended before: %v", err)
		}
	})
}

// so far are its counts.
func (a *asker) soFar(into *counts) {
	a.mu.Lock()
	defer a.mu.Unlock()
	into.add(&a.counts)
	a.partner.soFar(into)
}

// watch calls f with every answer until it is told to stop.
func (a *asker) watch(f func(oracle.Answer)) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	id := a.next
	a.watchers[id] = f
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, id)
	}
}

// keepAsking writes an answer to the tape when the next is another, with how many there were.
func (a *asker) keepAsking(ctx context.Context, m *member, name string) {
	var conn *dns.Conn
	tick := time.NewTicker(every)
	defer tick.Stop()
	same, count, first, until := "", 0, time.Time{}, time.Time{}
	write := func() {
		if count > 0 {
			a.w.tape.line(
				"answer",
				"%s in %s: %s; %d times from %s to %s",
				name,
				m.ID,
				same,
				count,
				first.Format(clock),
				until.Format(clock),
			)
		}
	}
	defer func() { write() }()
	for ctx.Err() == nil {
		answer := a.exchange(&conn, m, name)
		if ctx.Err() != nil {
			break
		}
		text := a.take(answer)
		if text != same {
			write()
			same, count, first = text, 0, answer.Sent
		}
		count, until = count+1, answer.Received
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if conn != nil {
		conn.Close()
	}
}

// exchange asks once.
func (a *asker) exchange(conn **dns.Conn, m *member, name string) oracle.Answer {
	out := oracle.Answer{Member: m.ID, Name: name, Sent: time.Now()}
	question := new(dns.Msg)
	question.SetQuestion(fmt.Sprintf("%s.%s.svc.clusterset.local.", name, ns), dns.TypeA)
	c := dns.Client{Timeout: patience}
	var err error
	if *conn == nil {
		*conn, err = c.Dial(m.DNS.Addr())
	}
	var reply *dns.Msg
	if err == nil {
		reply, _, err = c.ExchangeWithConn(question, *conn)
	}
	out.Received = time.Now()
	if err != nil {
		out.Why = err.Error()[strings.LastIndex(err.Error(), ": ")+1:] // not from which port
		if *conn != nil {
			(*conn).Close()
			*conn = nil
		}
		return out
	}
	out.Code = dns.RcodeToString[reply.Rcode]
	for _, rr := range reply.Answer {
		if r, ok := rr.(*dns.A); ok {
			out.Addresses = append(out.Addresses, r.A.String())
		} else {
			out.Addresses = append(out.Addresses, rr.String())
		}
	}
	slices.Sort(out.Addresses)
	return out
}

// take has an answer checked and counted, and puts it into words.
func (a *asker) take(answer oracle.Answer) string {
	result, why := a.w.oracle.Classify(answer)
	stalled := result == oracle.Wrong && answer.Code == "" && a.partner.excuses(answer.Sent, answer.Received)
	a.mu.Lock()
	a.asked++
	if answer.Code != "" {
		a.took.add(answer.Received.Sub(answer.Sent))
	}
	switch {
	case stalled:
		a.stalled++
	case result == oracle.Right:
		a.answered++
	case result == oracle.Unanswered:
		a.unanswered[why]++
	default:
		a.wrong++
		if strings.HasPrefix(why, "the VIP") {
			a.vipChanges++
		}
	}
	for _, f := range a.watchers {
		f(answer)
	}
	a.mu.Unlock()
	text := fmt.Sprintf("%s %s", answer.Code, strings.Join(answer.Addresses, " "))
	if answer.Code == "" {
		text = "no answer (" + answer.Why + ")"
	}
	switch {
	case stalled:
		text += " STALL: the machine stood still"
	case result == oracle.Wrong:
		text += " WRONG: " + why
		a.complain(answer, why)
	}
	return text
}

// complain tells of the first hundred; the tape has all.
func (a *asker) complain(answer oracle.Answer, why string) {
	a.mu.Lock()
	n := a.wrong
	a.mu.Unlock()
	if n <= 100 {
		a.w.tape.fail("%s in %s, asked at %s: %s", answer.Name, answer.Member, answer.Sent.Format(clock), why)
	}
}
