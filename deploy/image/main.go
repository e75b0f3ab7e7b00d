// Command image packs the binaries that make image has compiled into container images, without a container engine.
// It writes an OCI archive with every architecture and a docker archive per architecture. The same input gives the
// same bytes.
//
// It knows what a container runtime needs to know about a program, and nothing of what the program does.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"
)

// program is one image: a static binary that is its entry point.
type program struct {
	name         string // of the binary, the repository and the archives
	description  string
	ports        []string
	capabilities uint64 // bits of the binary's permitted and effective file capabilities
}

const netBindService = 1 << 10 // CAP_NET_BIND_SERVICE of linux/capability.h

// programs is the one list of the images.
var programs = []program{
	{
		name:        "coredns",
		description: "CoreDNS with every stock plugin, and multicluster: answers clusterset.local from ServiceImports",
		ports:       []string{"53/tcp", "53/udp"},
		// Port 53 for a user that is not root, as in the stock image.
		capabilities: netBindService,
	},
	{
		name:        "clusterset-controller",
		description: "Keeps a member cluster's exports and imports in step with its clusterset",
		ports:       []string{"8080/tcp", "8081/tcp"},
	},
}

// architectures are those of linux; the binary of each is DIR/linux_ARCH/NAME.
var architectures = []string{"amd64", "arm64"}

// options say what goes in and where it comes out; there is no other input.
type options struct {
	in, out        string // directories of the binaries and of the archives
	prefix         string // of the repository: PREFIX/NAME
	version        string
	revision       string // commit; left out where empty
	caCertificates string // PEM file
	time           time.Time
}

const usage = `usage: image -dir DIR -version VERSION [-revision COMMIT] [-prefix PREFIX] [-ca-certificates FILE]
             [-arch ARCH]
           packs DIR/linux_ARCH/NAME into DIR/NAME-oci.tar and DIR/NAME-docker-ARCH.tar
       image -dir DIR extract NAME ARCH FILE
           writes the program in DIR/NAME-oci.tar to FILE
`

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.in, "dir", "", "")
	flags.StringVar(&o.prefix, "prefix", "ghcr.io/clusterset-dns", "") // as the manifests name it
	flags.StringVar(&o.version, "version", "", "")
	flags.StringVar(&o.revision, "revision", "", "")
	flags.StringVar(&o.caCertificates, "ca-certificates", hostBundle(), "")
	flags.Func("arch", "", func(arch string) error { architectures = []string{arch}; return nil })
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.in == "" {
		return fmt.Errorf("-dir is missing\n%s", usage)
	}
	o.out = o.in

	switch rest := flags.Args(); {
	case len(rest) == 4 && rest[0] == "extract":
		return extract(o.in, rest[1], rest[2], rest[3])
	case len(rest) > 0:
		return fmt.Errorf("unknown arguments %q\n%s", rest, usage)
	}
	var err error
	if o.time, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		return err
	}
	for _, p := range programs {
		digest, err := pack(p, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Printf("%s@%s\n", o.tag(p), digest)
	}
	return nil
}

// hostBundle returns the CA certificates of the build host: Debian's path if there are none.
func hostBundle() string {
	paths := []string{
		"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine
		"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
		"/etc/ssl/cert.pem",                  // macOS
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

// sourceDate is the time of everything in the archives: SOURCE_DATE_EPOCH in seconds, 1970 by default.
func sourceDate(epoch string) (time.Time, error) {
	if epoch == "" {
		epoch = "0"
	}
	seconds, err := strconv.ParseUint(epoch, 10, 33) // 33 bits are what a tar header holds without extensions
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH=%s: want seconds since 1970 (date +%%s)", epoch)
	}
	return time.Unix(int64(seconds), 0).UTC(), nil
}

func (o options) tag(p program) string { return o.prefix + "/" + p.name + ":" + o.version }
