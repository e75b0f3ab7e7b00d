package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
)

// writeProfile writes a CPU profile of the server as shipped, while it answers all kinds of questions: those of the
// clusterset, the cluster's own, and forwarded ones, over UDP and TCP. make images compiles with it.
func (b *bench) writeProfile(path string) error {
	seconds := 90
	if b.quick {
		seconds = 5
	}
	upstream, err := answerAll()
	if err != nil {
		return err
	}
	defer func() { _ = upstream.Shutdown() }() // the process ends soon
	port, err := freePort()
	if err != nil {
		return err
	}
	// The profile names the program's file, so it is one of no user's folder.
	b.programs = b.dir
	if err := copyProgram(b.bin, b.program(unprofiled)); err != nil {
		return err
	}
	s := ourBlock
	s.program, s.forward = unprofiled, upstream.PacketConn.LocalAddr().String()
	s.first = fmt.Sprintf("pprof 127.0.0.1:%d", port)
	servers, stop, err := b.settings(0, s)
	if err != nil {
		return err
	}
	defer stop()
	result := make(chan error, 1)
	go func() {
		result <- download(fmt.Sprintf("http://127.0.0.1:%d/debug/pprof/profile?seconds=%d", port, seconds), path)
	}()
	asked := socketCase{what: "everything", lines: everything()}
	for i := 0; ; i++ {
		mode := "udp"
		if i%6 == 5 {
			mode = "tcp"
		}
		asked.edns = i%2 == 1
		if _, err := b.dnsperf(servers[s.name], asked, "-m", mode, "-l", "1", "-c", "4", "-q", "64"); err != nil {
			return err
		}
		select {
		case err := <-result:
			return err
		default:
		}
	}
}

// everything is what pods ask, roughly as often: more names of the cluster than of the clusterset's headless Services,
// search paths' names that do not exist, and a few others.
func everything() (lines []string) {
	for i := range 2000 {
		name, ns := stub.ClusterSetIP(i % 1000)
		full := name + "." + ns
		host, cluster := stub.Headless{}.Host(i % 30)
		for range 2 {
			lines = append(lines,
				full+".svc."+zone+" A",
				full+".svc."+zone+" AAAA",
				full+".none.svc."+zone+" A",
				full+".svc.cluster.local. A",
				full+".svc.cluster.local. AAAA",
				full+".none.svc.cluster.local. A",
			)
		}
		lines = append(lines,
			"_https._tcp."+full+".svc."+zone+" SRV",
			"_https._tcp."+full+".svc.cluster.local. SRV",
			headlessName(30)+" A",
			host+"."+cluster+"."+headlessName(30)+" A",
			fmt.Sprintf("%d.%d.96.10.in-addr.arpa. PTR", i%256, i/256%4),
			fmt.Sprintf("popular-%d.example.org. A", i%10),
			fmt.Sprintf("rare-%d.example.org. A", i),
		)
		if i%2 == 0 {
			lines = append(lines, headlessName(100)+" A", "_http._tcp."+headlessName(30)+" SRV")
		}
	}
	return lines
}

func download(url, path string) error {
	client := http.Client{Timeout: 5 * time.Minute}
	r, err := client.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, r.Status, body)
	}
	return os.WriteFile(path, body, 0o644)
}

func copyProgram(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
