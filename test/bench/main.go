// Command bench compares the multicluster plugin with the multicluster mode of CoreDNS's own kubernetes plugin, on
// the same data, in the same run, on the same machine: as ratios, of medians of interleaved pairs, so that what
// else the machine does touches both alike. whoami, which answers from nothing, is the ceiling of what a CoreDNS
// plugin can reach.
//
//	go run ./test/bench [-quick] [-only PARTS] [-rows REGEXP] [-limit TIME] [-out FILE]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// bench is one run.
type bench struct {
	ctx   context.Context
	quick bool
	rows  *regexp.Regexp // nil: all; of the parts that have a selector
	limit time.Duration  // after which a part begins no more rounds; 0: none
	dir   string         // for Corefiles and the like; removed at the end
	bin   string         // the coredns binary

	programs string // the directory of those that are compared with it
}

// part is one group of measurements.
type part struct {
	name, title, about string
	columns            [2]string
	run                func(*bench) ([]row, error)
}

var besideStock, besideInTree = [2]string{"ours", "stock"}, [2]string{"ours", "in-tree"}

var parts = []part{
	{"shipped", "As shipped", aboutShipped, besideStock, (*bench).shipped},
	{"own", "The cluster's own names", aboutOwn, besideStock, (*bench).own},
	{"throughput", "Queries a second on this machine", aboutThroughput, besideStock, (*bench).throughput},
	{"ablations", "Ablations", aboutAblations, [2]string{"with", "without"}, (*bench).ablations},
	{"servedns", "ServeDNS", aboutServeDNS, besideInTree, (*bench).serveDNS},
	{"sockets", "Through sockets", aboutSockets, besideInTree, (*bench).sockets},
	{"memory", "Memory", aboutMemory, besideInTree, (*bench).memory},
	{"start", "Start to ready", aboutStart, besideInTree, (*bench).start},
	{"updates", "Updates", aboutUpdates, besideInTree, (*bench).updates},
	{"real", "Real API server", aboutReal, besideInTree, (*bench).real},
}

func main() {
	log.SetLogger(logr.Discard()) // of the clients
	out := flag.String("out", "", "write the results to this `file` as well")
	only := flag.String("only", "", "comma-separated `parts` to run: "+strings.Join(partNames(), ", "))
	quick := flag.Bool("quick", false, "one or two minutes: few rounds, small data sets")
	rows := flag.String("rows", "", "a `regexp`: measure only these rows of the parts shipped and ablations")
	limit := flag.Duration("limit", 0, "begin no more rounds of CPU per query after this `time`")
	programs := flag.String("programs", "bin/bench", "the `directory` of the programs that are compared")
	profile := flag.String("profile", "", "measure nothing: write a CPU profile for make images to this `file`")
	bin := flag.String("coredns", "bin/coredns", "the server `binary` to measure")
	role := flag.String("role", "", "for the program's own use: what a child process does")
	flag.Parse()
	var err error
	if *role != "" {
		err = runRole(*role, flag.Args())
	} else {
		err = run(options{*out, *only, *rows, *bin, *programs, *profile, *limit, *quick})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are what the command line says.
type options struct {
	out, only, rows, bin, programs, profile string
	limit                                   time.Duration
	quick                                   bool
}

func run(o options) error {
	if _, err := os.Stat(o.bin); err != nil {
		return fmt.Errorf("%w: run make build first", err)
	}
	wanted := partNames()
	if o.only != "" {
		wanted = strings.Split(o.only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(partNames(), name) {
			return fmt.Errorf("there is no part %q: the parts are %s", name, strings.Join(partNames(), ", "))
		}
	}
	rows, err := regexp.Compile(o.rows)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{ctx: ctx, quick: o.quick, rows: rows, limit: o.limit, dir: dir, bin: o.bin, programs: o.programs}
	if o.profile != "" {
		return b.writeProfile(o.profile)
	}
	began := time.Now()
	var results []result
	for _, p := range parts {
		if !slices.Contains(wanted, p.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "== %s\n", p.name)
		rows, err := p.run(b)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		printRows(os.Stderr, rows)
		results = append(results, result{p, rows})
	}
	if o.out != "" {
		if err := writeReport(o.out, results, time.Since(began)); err != nil {
			return err
		}
	}
	return missed(results).Err()
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// roles are what child processes do: each prints one JSON value.
var roles = map[string]func(args []string) (any, error){
	"servedns": roleServeDNS,
	"heap":     roleHeap,
}

func runRole(name string, args []string) error {
	role, ok := roles[name]
	if !ok {
		return fmt.Errorf("there is no role %q", name)
	}
	v, err := role(args)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(v)
}

// child runs a role in a process of its own and reads what it prints.
func (b *bench) child(into any, role string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(b.ctx, self, append([]string{"-role", role}, args...)...)
	cmd.SysProcAttr = dieWithParent()
	stdout, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: %w: %s", role, err, failed.Stderr)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(stdout, into)
}
