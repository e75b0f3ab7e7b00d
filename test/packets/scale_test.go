package packets

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	scaledTo = 30 // endpoints of cluster a
	enough   = 10 // of them that carry traffic: preference-min-ready
)

// scaled are connections from a while its own endpoints become ready and unready.
type scaled struct {
	began time.Time
	made  []connection
	steps []scaling
}

// scaling is how many endpoints of a are ready from a time on.
type scaling struct {
	at    time.Time
	ready int
}

// TestT2ScalesUnderLoad: while a cluster's own endpoints go from 0 to 30 and back, every connection is answered: by all
// ready endpoints of the region while there are too few own ones, and by own ones alone from ten seconds after.
func TestT2ScalesUnderLoad(t *testing.T) {
	w, ns := clusters(t)
	w.regions(t)
	svc := service(ns, tcp("http", 80))
	var vip netip.AddrPort
	for _, c := range w.clusters {
		c.create(t, svc.DeepCopy())
		c.create(t, c.endpoints(svc, c.ID+"1", c.ID+"2")...)
		ready := scaledTo
		if c == w.a {
			ready = 0
		}
		c.scale(t, ns, ready)
		e := export(svc)
		e.Annotations = map[string]string{
			preference: "local, same:region, any", "clusterset-dns.io/preference-min-ready": fmt.Sprint(enough),
		}
		c.create(t, e)
	}
	v4, _ := w.a.vips(t, ns, "a", "b", "c")
	vip = netip.AddrPortFrom(v4, 80)
	w.a.wantAnswers(t, "tcp", vip, "b1:8080", "b2:8080")

	s := &scaled{began: time.Now()}
	var dialers []*dialer
	for range 3 {
		dialers = append(dialers, dialing(t, w.a, vip, answerLimit))
	}
	for _, ready := range []int{0, 5, 10, 15, 20, 25, 30, 30, 30, 30, 25, 20, 15, 10, 5, 0, 0} {
		w.a.scale(t, ns, ready)
		s.steps = append(s.steps, scaling{time.Now(), ready})
		time.Sleep(3 * time.Second) // the load goes on
	}
	for _, d := range dialers {
		s.made = append(s.made, d.stop()...)
	}
	slices.SortFunc(s.made, func(x, y connection) int { return x.began.Compare(y.began) })

	up, down, failed, strayed := s.figures()
	figures = append(figures, fmt.Sprintf("packets: scaled to %d and back: %d connections, %d failed, %d elsewhere; "+
		"own endpoints alone carry the traffic from %v after enough are ready until %v after they are not",
		scaledTo, len(s.made), failed, strayed, up.Round(time.Millisecond), down.Round(time.Millisecond)))
	switch {
	case failed > 0 || strayed > 0:
		t.Errorf("of %d connections %d failed, and %d went to a cluster of no tier", len(s.made), failed, strayed)
	case up < 10*time.Second-time.Second/2: // the last connection began some time before the change
		t.Errorf("own endpoints alone carry the traffic %v after enough are ready, sooner than 10 s", up)
	case up > 15*time.Second: // also if they never do
		t.Errorf("own endpoints alone carry the traffic only %v after enough are ready, later than 10 s", up)
	case down > 10*time.Second && os.Getenv("ORDER_PAGE") != "":
		t.Errorf("own endpoints alone still carry the traffic %v after too few are ready", down)
	}
	if page := os.Getenv("ORDER_PAGE"); page != "" {
		if err := s.write(page, time.Now()); err != nil {
			t.Error(err)
		}
	}
}

// scale gives web so many ready endpoints of scaledTo. They are further addresses of the cluster's two backends. Those
// that are not ready answer, as what drains does.
func (c *cluster) scale(t *testing.T, namespace string, ready int) {
	t.Helper()
	eventually(t, c.ID+": endpoints", func() error {
		var s discoveryv1.EndpointSlice
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web-ipv4"}, &s); err != nil {
			return err
		}
		s.Endpoints = nil
		for i := range scaledTo {
			p, is := c.backends[fmt.Sprint(c.ID, i%2+1)], i < ready
			at := p.sources(p.v4).Addr().As4()
			at[3] = byte(i + 1)
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{netip.AddrFrom4(at).String()},
				Conditions: discoveryv1.EndpointConditions{Ready: &is, Serving: &is},
			})
		}
		return c.Update(t.Context(), &s)
	})
}

// figures returns how long after enough own endpoints are ready the last connection reaches another cluster, how long
// after that has ended the first one does, how many connections failed, and how many reached cluster c, which is of the
// last tier.
func (s *scaled) figures() (up, down time.Duration, failed, strayed int) {
	var reached, lost time.Time
	for i, step := range s.steps {
		was := 0
		if i > 0 {
			was = s.steps[i-1].ready
		}
		if was < enough && step.ready >= enough {
			reached = step.at
		}
		if was >= enough && step.ready < enough {
			lost = step.at
		}
	}
	up, down = -1, -1
	for _, c := range s.made {
		cluster, _, _ := strings.Cut(c.answer, ":")
		switch {
		case c.answer == "":
			failed++
		case cluster[0] == 'c':
			strayed++
		case cluster[0] == 'b' && c.began.Before(lost):
			up = c.began.Sub(reached)
		case cluster[0] == 'b' && down < 0:
			down = c.began.Sub(lost)
		}
	}
	return up, down, failed, strayed
}

const orderPage = `# Order of clusters under load

` + "`make bench-order`" + ` wrote this page on %s, with a hub and three members on one machine of %d cores. Each
has a real API server, our agent and a real kube-proxy, in network namespaces. Clusters a and b are of one region, c of
another; b and c have %d ready endpoints. The preference is ` + "`local, same:region, any`" + `, with at least %d ready
endpoints. Cluster a makes 30 new connections a second, while its own endpoints become ready in steps of five every
three seconds, and then unready. Those that are not ready still answer, as what drains does. A cluster is of its own
region, so with too few of them, they share the traffic with those of b.

| what | |
| --- | --- |
| connections | %d |
| of them failed, or answered by c | %d, %d |
| from %d ready endpoints to the last connection to b (10 s are by rule) | %v |
| from fewer to the first connection to b | %v |

![share of connections that each cluster answers, and ready endpoints of a](images/order.svg)
`

// write writes the page and its plot.
func (s *scaled) write(page string, at time.Time) error {
	up, down, failed, strayed := s.figures()
	text := fmt.Sprintf(orderPage, at.UTC().Format("2 January 2006"), runtime.NumCPU(), scaledTo, enough, len(s.made),
		failed, strayed, enough, up.Round(10*time.Millisecond), down.Round(10*time.Millisecond))
	return errors.Join(
		os.WriteFile(page, []byte(text), 0o644),
		os.WriteFile(filepath.Join(filepath.Dir(page), "images", "order.svg"), []byte(s.plot()), 0o644),
	)
}

// plot returns the share of each cluster and the ready endpoints of a over time, as SVG.
func (s *scaled) plot() string {
	const left, top, width, height = 50, 30, 660, 180
	seconds := int(s.made[len(s.made)-1].began.Sub(s.began)/time.Second) + 1
	x := func(since time.Duration) float64 { return left + width*since.Seconds()/float64(seconds) }
	y := func(share float64) float64 { return top + height*(1-share) }
	var out strings.Builder
	fmt.Fprint(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 260" font-family="sans-serif" `+
		`font-size="12" fill="#808080">`+"\n")
	for percent := 0; percent <= 100; percent += 50 {
		fmt.Fprintf(&out, `<path d="M%d %.0fh%d" stroke="#808080" stroke-opacity="0.4"/><text x="%d" y="%.0f" `+
			`text-anchor="end">%d %%</text>`+"\n",
			left, y(float64(percent)/100), width, left-6, y(float64(percent)/100)+4, percent)
	}
	for second := 0; second <= seconds; second += 10 {
		fmt.Fprintf(&out, `<text x="%.0f" y="%d" text-anchor="middle">%d s</text>`+"\n",
			x(time.Duration(second)*time.Second), top+height+18, second)
	}
	curve := func(number int, name, colour, d string) {
		fmt.Fprintf(&out, `<path fill="none" stroke="%s" stroke-width="2" d="M%s"/><text x="%d" y="16" fill="%[1]s">`+
			"%[4]s</text>\n", colour, d, left+number*170, name)
	}
	all, of := make([]int, seconds), map[byte][]int{}
	for _, cluster := range []byte("ab") {
		of[cluster] = make([]int, seconds)
	}
	for _, c := range s.made {
		i := int(c.began.Sub(s.began) / time.Second)
		all[i]++
		if answered := of[cmp.Or(c.answer, "-")[0]]; answered != nil {
			answered[i]++
		}
	}
	for number, cluster := range []byte("ab") {
		var points []string
		for i, n := range of[cluster] {
			if all[i] > 0 {
				middle := time.Duration(i)*time.Second + time.Second/2
				points = append(points, fmt.Sprintf("%.1f %.1f", x(middle), y(float64(n)/float64(all[i]))))
			}
		}
		curve(number, "answered by "+string(cluster), []string{"#2f81f7", "#d29922"}[number], strings.Join(points, "L"))
	}
	var steps []string
	for _, step := range s.steps {
		at := x(step.at.Sub(s.began))
		if len(steps) > 0 {
			steps = append(steps, fmt.Sprintf("H%.1f", at))
		}
		steps = append(steps, fmt.Sprintf("%s%.1f %.1f", []string{"", "L"}[min(1, len(steps))], at,
			y(float64(step.ready)/scaledTo)))
	}
	curve(2, fmt.Sprintf("ready endpoints of a, of %d", scaledTo), "#808080", strings.Join(steps, ""))
	out.WriteString("</svg>\n")
	return out.String()
}
