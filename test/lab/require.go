package lab

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// packages are the Debian packages of the programs that tests run.
var packages = map[string]string{
	"dig":        "bind9-dnsutils",
	"dnsperf":    "dnsperf",
	"taskset":    "util-linux",
	"nsenter":    "util-linux",
	"unshare":    "util-linux",
	"setpriv":    "util-linux",
	"openssl":    "openssl",
	"hostname":   "hostname",
	"conntrack":  "conntrack",
	"containerd": "containerd",
	"setcap":     "libcap2-bin",
	"ip":         "iproute2",
	"nft":        "nftables",
	"iptables":   "iptables",
	"runc":       "runc",
	"ptp":        "containernetworking-plugins",
	"nslookup":   "bind9-dnsutils",
	"socat":      "socat",
	"nc.openbsd": "netcat-openbsd",
	"dash":       "dash",
	"curl":       "curl",
	"busybox":    "busybox-static",
	"promtool":   "prometheus",
}

var (
	installing sync.Mutex
	updated    bool
)

// Require makes sure that programs are there: those missing are installed from Debian's packages, by root or with
// passwordless sudo. Where that cannot be, the error names the packages in one line.
func Require(programs ...string) error {
	installing.Lock()
	defer installing.Unlock()
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil || p == "ptp" && pluginFolder() != "" {
			continue
		}
		pkg, ok := packages[p]
		if !ok {
			return fmt.Errorf("%s is missing, and which package has it is not known", p)
		}
		missing = append(missing, pkg)
	}
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing, " ")
	fmt.Fprintf(os.Stderr, "lab: installing the Debian packages %s ...\n", names)
	if !updated {
		if err := apt("update"); err != nil {
			return fmt.Errorf("install the Debian packages %s: %w", names, err)
		}
		updated = true
	}
	if err := apt(append([]string{"install", "-y", "--no-install-recommends"}, missing...)...); err != nil {
		return fmt.Errorf("install the Debian packages %s: %w", names, err)
	}
	return nil
}

// apt runs apt-get. Its error is the last line of what that said.
func apt(args ...string) error {
	args = append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"}, args...)
	if os.Getuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
}
