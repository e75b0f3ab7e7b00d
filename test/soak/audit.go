package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
)

// write is a request of an audit log that changed something.
type write struct {
	RequestReceivedTimestamp time.Time
	Verb                     string
	User                     struct{ Username string }
	ObjectRef                struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus           struct {
		Code    int
		Message string
	}
}

// succeeded and refused tell how a write ended. One that is neither met a conflict, or a server in trouble.
func (w write) succeeded() bool { return w.ResponseStatus.Code >= 200 && w.ResponseStatus.Code < 300 }
func (w write) refused() bool   { return slices.Contains([]int{400, 403, 422}, w.ResponseStatus.Code) }

func (w write) String() string {
	return fmt.Sprintf("%s %s %s %s/%s", w.User.Username, w.Verb, w.what(), w.ObjectRef.Namespace, w.ObjectRef.Name)
}

func (w write) what() string {
	if w.ObjectRef.Subresource != "" {
		return w.ObjectRef.Resource + "/" + w.ObjectRef.Subresource
	}
	return w.ObjectRef.Resource
}

const (
	account = "system:serviceaccount:"
	agents  = account + "clusterset-system:clusterset-controller"
	hubs    = account + "clusterset-system:clusterset-hub"
	peers   = account + lab.HubNamespace + ":mcs-"
)

// forbidden tells why a write that succeeded is of another's object (S1, I7; docs/spec/DESIGN.md §3); empty where
// it may be.
func forbidden(w write) string {
	ref := w.ObjectRef
	switch user := w.User.Username; {
	case strings.HasPrefix(user, peers): // on the hub
		id := strings.TrimPrefix(user, peers)
		mine := ref.Name == id &&
			(ref.Resource == "leases" || w.what() == "clusterprofiles/status" || ref.Resource == "clusterprofiles") ||
			ref.Name == id && ref.Resource == "futures" || // test/upgrade/future.patch
			strings.HasSuffix(ref.Name, "."+id) &&
				(ref.Resource == "serviceexportrecords" || ref.Resource == "endpointpages") ||
			ref.Name == "mcs-"+id && w.what() == "serviceaccounts/token"
		if !mine &&
			// the name of what is created by POST is in its body; what reads such names is admission
			!(w.Verb == "create" && ref.Name == "") {
			return "a member writes what is not its own"
		}
	case user == agents: // in its cluster
		if w.Verb == "delete" && endsTraffic(ref.Resource, ref.Name) {
			return "an agent deletes what carries the traffic of a name that is exported all the time"
		}
		switch ref.Resource {
		case "services":
			if w.Verb != "create" && !strings.HasPrefix(ref.Name, "derived-") {
				return "an agent writes a user's Service"
			}
		case "endpointslices":
			for _, name := range names {
				if ref.Name == sliceName(name) {
					return "an agent writes a user's EndpointSlice"
				}
			}
		case "serviceexports":
			if ref.Subresource != "status" {
				return "an agent writes a ServiceExport, though it owns only the status"
			}
		case "serviceimports", "serviceexportrecords", "leases", "events", "clusterproperties",
			"memberships", "selfsubjectrulesreviews":
		case "secrets":
			if ref.Name != "hub-kubeconfig" {
				return "an agent writes a Secret"
			}
		default:
			return "an agent writes what it has no business with"
		}
	case user == hubs:
		evicted := strings.Contains(ref.Name, "."+late)
		if (ref.Resource == "serviceexportrecords" || ref.Resource == "endpointpages") && !evicted {
			return "the hub's controller writes a record of a member that has not departed"
		}
	}
	return ""
}

// endsTraffic returns whether an object is the import or the derived Service of a name that users always export. A new
// one cuts connections, though no answer shows that.
func endsTraffic(resource, object string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return !slices.Contains(toggled, name) && (resource == "serviceimports" && object == name ||
			resource == "services" && object == resolution.DerivedName(ns, name))
	})
}

// readWrites calls f for every write from an offset of an audit log on, and returns where the next ones begin.
func readWrites(path string, from int64, f func(write)) (next int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return from, err
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return from, err
	}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // the last one may be under way, or was cut by a kill
			return from, nil
		}
		if err != nil {
			return from, err
		}
		from += int64(len(line))
		var w write
		if json.Unmarshal(line, &w) == nil { // a killed server leaves halves of lines
			f(w)
		}
	}
}

// auditAll looks at what was written since the last time, and says who wrote what is another's.
func (w *world) auditAll() (n int, err error) {
	logs := map[string]string{"hub": w.Hub.AuditLog()}
	for _, m := range w.members {
		logs[m.ID] = m.Cluster.AuditLog()
	}
	for where, path := range logs {
		next, err := readWrites(path, w.audited[where], func(one write) {
			if !strings.HasPrefix(one.User.Username, account) {
				return
			}
			if w.skew != nil {
				w.answered(where, one)
			}
			if !one.succeeded() {
				return
			}
			n++
			if why := forbidden(one); why != "" {
				w.tape.fail("%s: %s: %s", where, why, one)
			}
		})
		if err != nil {
			return n, err
		}
		w.audited[where] = next
	}
	return n, nil
}
