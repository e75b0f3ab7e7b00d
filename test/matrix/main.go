// Command matrix runs a core of the laboratory's tests on several versions of Kubernetes, one after the other, and of
// agents of two versions side by side. It writes docs/compatibility.md, and fails if a test does.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// version is the commit that is run, set by the Makefile.
var version = "unknown"

// area is a row of the page: tests of one package.
type area struct {
	what, pkg string
	tests     []string // empty: all
	since     string   // the first version of Kubernetes that has what it needs; empty: all have
}

// supported is the day until which Kubernetes supports a minor version (kubernetes.io/releases).
var supported = map[string]string{
	"v1.33": "28 June 2026", "v1.34": "27 October 2026", "v1.35": "28 February 2027", "v1.36": "28 June 2027",
	"v1.37": "28 October 2027",
}

var areas = []area{
	{what: "Schemas, admission policies and rights, each by its own ServiceAccount", pkg: "policies"},
	{what: "What our programs ask for in a whole life is what they may", pkg: "grants", since: "v1.33"},
	{what: "`kubectl clusterset`: init, join, status, explain, doctor, leave", pkg: "cli", tests: []string{
		"TestAnAdminCreatesAClusterSet", "TestDoctorFindsWhatIsWrongInRealClusters",
	}},
	{what: "The hub: profiles, blocks of VIPs, members that leave and come again", pkg: "inventory", tests: []string{
		"TestP1NamespaceAndOneProfilePerMember", "TestP2MarksAreKeptAndOthersProfilesLeftAlone",
		"TestV2BlocksAreGrantedAndStay", "TestID4LeftMemberJoinsAgain",
	}},
	{what: "Members: export, conflicts, import, VIPs, slices, a hub restored from a snapshot", pkg: "members",
		tests: []string{
			"TestE1VisibleOnlyWhileExported", "TestE5ConflictOnAllExporters", "TestC3C4Ports", "TestI6TheVIPStays",
			"TestI8BothVersions", "TestI9EditsArePutRight", "TestS1S2Slices", "TestHubRestored",
		}},
	{what: "DNS: every case by `dig`, transfers, an API server restored from a snapshot", pkg: "integration",
		tests: []string{"TestCases", "TestL6Transfer", "TestL1RestoredAPIServer"}},
	{what: "Packets through this version's kube-proxy", pkg: "packets", tests: []string{
		"TestVIPIsReachedFromEveryClusterByBothFamilies", "TestOnlyExportersGetTraffic", "TestT2OrderOfClusters",
	}},
	{what: "VIPs of ranges of their own (ServiceCIDR)", pkg: "vips", since: "v1.33", tests: []string{
		"TestV2PreferredComesFromTheBlock", "TestV3ARangeInUseIsSwapped",
	}},
}

// mixed is what agents of two versions do side by side, with the hub and the manifests of the newer one.
var mixed = area{pkg: "members", tests: []string{
	"TestE1VisibleOnlyWhileExported", "TestE2UnexportOrServiceGone", "TestE5ConflictOnAllExporters", "TestE6Types",
	"TestE11ExportToSomeClusters", "TestC1C2TheOldestWins", "TestC3C4Ports", "TestC3HeadlessPorts", "TestI6TheVIPStays",
	"TestS1S2Slices", "TestE2E10S1WhatWentWhileAnAgentWasAwayGoes", "TestUnexportInQuietTimes",
}}

// result of an area on a version.
type result struct {
	Passed, Skipped int
	Failed          []string
	Took            time.Duration
}

func (r result) String() string {
	text := fmt.Sprintf("%d pass", r.Passed)
	if r.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.Skipped)
	}
	if len(r.Failed) > 0 {
		text += fmt.Sprintf(", **%d fail**", len(r.Failed))
	}
	return text
}

func main() {
	versions := flag.String("versions", "", "of Kubernetes, separated by spaces")
	out := flag.String("out", "", "file for the page; empty: none")
	older := flag.String(
		"older",
		"",
		"an older build of clusterset-controller, by a path from the checkout; empty: none",
	)
	olderVersion := flag.String("older-version", "", "its version")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := matrix(ctx, strings.Fields(*versions), *older, *olderVersion, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func matrix(ctx context.Context, versions []string, older, olderVersion, out string) error {
	if len(versions) == 0 {
		return errors.New("name versions of Kubernetes: -versions 'v1.33.13 v1.37.2'")
	}
	results := map[string][]result{}
	var failed []string
	for _, v := range versions {
		for _, a := range areas {
			if v < a.since {
				results[v] = append(results[v], result{})
				continue
			}
			r, err := a.once(ctx, v, "K8S="+v)
			if err != nil {
				return fmt.Errorf("%s on Kubernetes %s: %w", a.pkg, v, err)
			}
			fmt.Printf("%s %s: %v in %v\n", v, a.pkg, r, r.Took.Round(time.Second))
			for _, name := range r.Failed {
				failed = append(failed, v+" "+name)
			}
			results[v] = append(results[v], r)
		}
	}
	together := "No two versions of ours have been tested with each other."
	if older != "" {
		r, err := mixed.once(ctx, "beside-"+olderVersion, "LAB_OLDER="+older)
		if err != nil {
			return fmt.Errorf("beside agents of %s: %w", olderVersion, err)
		}
		fmt.Printf("beside agents of %s: %v in %v\n", olderVersion, r, r.Took.Round(time.Second))
		for _, name := range r.Failed {
			failed = append(failed, name+" beside agents of "+olderVersion)
		}
		together = fmt.Sprintf(
			"With one agent of this version, and the other agents of commit %s, of %d tests of members: %v.",
			olderVersion,
			len(mixed.tests),
			r,
		)
	}
	if out != "" {
		if err := os.WriteFile(out, []byte(page(versions, results, together, failed)), 0o644); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// once is run, or what that gave at this commit before if nothing failed: a whole matrix takes an hour, and may be run
// in parts. Changes that are not committed have no such results.
func (a area) once(ctx context.Context, key, env string) (r result, err error) {
	path := filepath.Join("bin", "matrix", version, key+"-"+a.pkg+".json")
	clean := version != "unknown" && !strings.HasSuffix(version, "-dirty")
	if kept, err := os.ReadFile(path); clean && err == nil {
		return r, json.Unmarshal(kept, &r)
	}
	r, err = a.run(ctx, env)
	if err != nil || !clean || len(r.Failed) > 0 {
		return r, err
	}
	text, err := json.Marshal(r)
	return r, errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644))
}

// run runs the area's tests with one more variable, KEY=VALUE. Its error says that they could not be run.
func (a area) run(ctx context.Context, env string) (r result, err error) {
	args := []string{"test", "-count=1", "-json", "-timeout=30m", "-vet=off", "-p=1"}
	if len(a.tests) > 0 {
		args = append(args, "-run=^("+strings.Join(a.tests, "|")+")$")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./test/"+a.pkg)...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	events, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	said := map[string]string{}
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // what the compiler says
		}
		test, _, nested := strings.Cut(e.Test, "/")
		said[test] += e.Output
		switch {
		case nested || test == "":
		case e.Action == "pass":
			r.Passed++
		case e.Action == "skip":
			r.Skipped++
			fmt.Println(said[test])
		case e.Action == "fail":
			r.Failed = append(r.Failed, test)
			fmt.Println(said[test])
		}
	}
	ended := errors.Join(ctx.Err(), lines.Err(), cmd.Wait())
	r.Took = time.Since(began)
	switch ran := r.Passed + r.Skipped + len(r.Failed); {
	case ended != nil && len(r.Failed) == 0:
		return r, fmt.Errorf("%w\n%s", ended, said[""])
	case ran == 0 || len(a.tests) > 0 && ran != len(a.tests) && ended == nil:
		return r, fmt.Errorf("%d tests ran, of %v", ran, a.tests)
	}
	return r, nil
}

func page(versions []string, results map[string][]result, together string, failed []string) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if !strings.HasPrefix(text, "|") {
			text = wrap(text)
		}
		b.WriteString(text + "\n")
	}
	line("# Compatibility")
	line("")
	line("`make matrix` wrote this page on %s, at version %s. It ran these tests of the laboratory with the etcd, "+
		"kube-apiserver, kube-controller-manager, kubectl and kube-proxy of each version of Kubernetes. "+
		"`make matrix K8S=v1.32.13` runs them on another one. CI runs all tests on one version, and this every night.",
		time.Now().UTC().Format("2 January 2006"), version)
	line("")
	line("| | %s |", strings.Join(versions, " | "))
	line("| ---%s |", strings.Repeat(" | ---", len(versions)))
	row, left := "| Supported by Kubernetes until", maps.Clone(supported)
	for _, v := range versions {
		minor := v[:strings.LastIndex(v, ".")]
		row += " | " + cmp.Or(supported[minor], "unknown")
		delete(left, minor)
	}
	line("%s |", row)
	for i, a := range areas {
		row := "| " + a.what
		for _, v := range versions {
			if v < a.since {
				row += " | from " + strings.TrimPrefix(a.since, "v") + " on"
			} else {
				row += " | " + results[v][i].String()
			}
		}
		line("%s |", row)
	}
	line("")
	if len(failed) > 0 {
		line("Failed: %s.", strings.Join(failed, ", "))
		line("")
	}
	if len(left) > 0 {
		line("Not run for this page: %s.", strings.Join(slices.Sorted(maps.Keys(left)), ", "))
		line("")
	}
	line(
		"1.32 is not in the list any more. On v1.32.2, at version f318748, all of these passed but " +
			"`TestT2OrderOfClusters`: there, kube-proxy's mode nftables is beta, and 4 of 16,000 new connections " +
			"were refused while traffic moved from one cluster to another.",
	)
	line("")
	line(
		"All clusters of a run have the same version: clusters of different versions in one clusterset are not " +
			"tested. `make e2e` runs on nodes of 1.36. Nobody has run kubelet 1.37 beside containerd 1, which lacks " +
			"the call RuntimeConfig. By its source it falls back, and the one of 1.38 will not.",
	)
	line("")
	line("## Versions of ours")
	line("")
	line(
		"Upgrade the hub first, then the members in any order ([operate](operate.md#upgrading)). A member may be one " +
			"minor version older than the hub, and than other members. There is no release yet.",
	)
	line("")
	line("%s", together)
	return b.String()
}

// wrap breaks a paragraph into lines of at most 120 columns.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > 120:
			b.WriteString("\n")
			column = 0
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}
