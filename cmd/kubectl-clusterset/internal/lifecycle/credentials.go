package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// kubeconfigKey of the Secret is the file that the agent reads.
const kubeconfigKey = "kubeconfig"

// writeCredentials requests a token from the hub and writes the agent's Secret, unless the agent reads another file.
func (j *join) writeCredentials(ctx context.Context) error {
	if j.file != "" {
		j.Say("%s: the agent keeps the credentials that it has in %s", j.Member.Name, j.file)
		return nil
	}
	seconds := int64(j.lifetime() / time.Second)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: j.HubNamespace,
		Name: clusterset.AccountPrefix + j.ClusterID}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := j.Hub.SubResource("token").Create(ctx, account, request); err != nil {
		return j.Hub.Failed(err, "requesting a token of %s", account.Name)
	}
	secret, server, err := j.secretWith(request.Status.Token)
	if err != nil {
		return err
	}
	j.server = server
	if server == j.Hub.Config.Host {
		profile := types.NamespacedName{Namespace: j.HubNamespace, Name: j.ClusterID}
		if err := checkToken(ctx, j.Hub, request.Status.Token, profile); err != nil {
			return err
		}
	}
	if err := j.Member.Apply(ctx, []*unstructured.Unstructured{secret}, j.Say); err != nil {
		return err
	}
	j.Say("%s: wrote the credentials for the hub, valid until %s; the agent renews them", j.Member.Name,
		request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339))
	return nil
}

// checkToken returns an error if the admin's way to the hub is a proxy that accepts no ServiceAccount tokens, as some
// providers have: the agent could not use it. Any other problem with the token is the agent's to report.
func checkToken(ctx context.Context, admin *cluster.Cluster, token string, profile types.NamespacedName) error {
	cfg := rest.AnonymousClientConfig(admin.Config)
	cfg.BearerToken = token
	hub, err := cluster.New(admin.Name, cfg)
	if err != nil {
		return err
	}
	err = cluster.Until(ctx, 5*time.Second, func(ctx context.Context) (bool, string, error) { // the account is new
		_, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, profile)
		return !apierrors.IsUnauthorized(err), "", err
	})
	if err != nil {
		return report.WithRemedy(hub.Failed(err, "authenticating at %s with the token of a ServiceAccount", cfg.Host),
			"if that is a proxy: --hub-kubeconfig FILE, with the API server's own address and CA")
	}
	return nil
}

// secretWith returns the Secret with a token, and the hub's URL in it.
func (j *join) secretWith(token string) (*unstructured.Unstructured, string, error) {
	cfg := rest.CopyConfig(j.Hub.Config)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, "", j.Hub.Failed(err, "reading the kubeconfig's certificates")
	}
	file := clientcmdapi.NewConfig()
	hub := j.address(cfg)
	file.Clusters["hub"] = hub
	file.AuthInfos["member"] = &clientcmdapi.AuthInfo{TokenFile: clusterset.SecretToken}
	file.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "member"}
	file.CurrentContext = "hub"
	text, err := clientcmd.Write(*file)
	if err != nil {
		return nil, "", err
	}
	out := secret()
	out.Object["data"] = map[string]any{kubeconfigKey: base64.StdEncoding.EncodeToString(text),
		clusterset.SecretToken: base64.StdEncoding.EncodeToString([]byte(token))}
	return out, hub.Server, nil
}

// address returns where the member reaches the hub: --hub-server if it is given; else the current address, if the hub's
// certificate authority is still the same; else the address in the admin's kubeconfig. With each goes its proxy: with
// --hub-server the current one, because the admin's may not be for pods.
func (j *join) address(cfg *rest.Config) *clientcmdapi.Cluster {
	to := &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData, TLSServerName: cfg.ServerName}
	was := j.currentAddress()
	same := was != nil && bytes.Equal(bytes.TrimSpace(was.CertificateAuthorityData), bytes.TrimSpace(cfg.CAData))
	const deletion = "first delete Secret " + kube.SystemNamespace + "/" + clusterset.SecretHub
	if j.HubServer != "" {
		to.Server = j.HubServer
		if same && was.ProxyURL != "" {
			to.ProxyURL = was.ProxyURL
			j.Say("pods reach the hub at %s; without that proxy: %s", route(to), deletion)
		}
		return to
	}
	to.ProxyURL = kube.ProxyURL(cfg)
	if u, err := url.Parse(to.ProxyURL); err == nil && isLoopback(u.Hostname()) {
		j.Say("your kubeconfig's proxy %s is on this machine, so pods reach the hub without it", u.Redacted())
		to.ProxyURL = ""
	}
	switch {
	case was == nil || route(was) == route(to):
	case same:
		remedy := "--hub-server"
		if was.Server == to.Server {
			remedy = deletion
		}
		j.Say("the hub's address stays %s; from here, it is %s; to change it: %s", route(was), route(to), remedy)
		to.Server, to.TLSServerName, to.ProxyURL = was.Server, was.TLSServerName, was.ProxyURL
	default:
		j.Say("the hub's certificate authority has changed, so its address is %s as from here, not %s any more; "+
			"if pods do not reach it there: --hub-server", route(to), route(was))
	}
	if was == nil && to.ProxyURL != "" {
		j.Say("pods reach the hub at %s; without that proxy: %s, then run the command with --hub-server", route(to),
			deletion)
	}
	if u, err := url.Parse(to.Server); err == nil && isLoopback(u.Hostname()) {
		j.Say("the hub's address %s is a loopback address; if pods do not reach it there: --hub-server", to.Server)
	}
	return to
}

// checkSameAddress asks for --hub-server if the hub's address has changed, and no certificate authority of its own
// shows whether it is still the same hub. Another hub's token must not go to the current address.
func (j *join) checkSameAddress(context.Context) error {
	was, cfg := j.currentAddress(), j.Hub.Config
	if j.file != "" || j.HubServer != "" || was == nil || was.Server == cfg.Host ||
		len(was.CertificateAuthorityData)+len(cfg.CAData)+len(cfg.CAFile) > 0 {
		return nil
	}
	return report.Fail("name the address for pods with --hub-server: "+was.Server+" if it is the same hub, or else "+
		cfg.Host, "the current credentials are for the hub at %s, your kubeconfig names %s, and neither has a "+
		"certificate authority that shows whether it is the same hub", route(was), cfg.Host)
}

// route returns a text with the server of c, and with its proxy if it has one, but without the proxy's password.
func route(c *clientcmdapi.Cluster) string {
	if u, err := url.Parse(c.ProxyURL); err == nil && c.ProxyURL != "" {
		return c.Server + " through the proxy " + u.Redacted()
	}
	return c.Server
}

// readSecret reads the agent's current Secret, nil if there is none.
func (j *join) readSecret(ctx context.Context) (err error) {
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub}
	j.current, err = kube.Get[*corev1.Secret](ctx, j.Member, name)
	return j.Member.Failed(err, "reading Secret %s", name)
}

// currentAddress returns the hub's address in the agent's current Secret, or nil.
func (j *join) currentAddress() *clientcmdapi.Cluster {
	if j.current == nil {
		return nil
	}
	file, err := clientcmd.Load(j.current.Data[kubeconfigKey])
	if err != nil || file.Contexts[file.CurrentContext] == nil {
		return nil
	}
	return file.Clusters[file.Contexts[file.CurrentContext].Cluster]
}

// Limits of a token's lifetime: API servers refuse less, the hub's policy refuses more.
const shortest, longest = 10 * time.Minute, 24 * time.Hour

// lifetime returns --token-lifetime, or that of the current token.
func (j *join) lifetime() time.Duration {
	if j.TokenLifetime != 0 || j.current == nil {
		return cmp.Or(j.TokenLifetime, longest)
	}
	token, err := clusterset.ParseToken(string(j.current.Data[clusterset.SecretToken]))
	if err != nil {
		return longest
	}
	return min(max(token.Lifetime(), shortest), longest)
}

// await waits until the agent has written ClusterProperty clusterset.k8s.io here and renewed its Lease on the hub, at
// the address of the new credentials: it keeps a connection that works until that one does. In a clone, the original's
// agent renews that Lease, and what the clone has stored is of another renewal; so it is if the agent cannot store its.
func (j *join) await(ctx context.Context) error {
	d, err := j.Member.Deployment(ctx, manifest.AgentDeployment)
	if err != nil {
		return err
	}
	if d != nil && ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return report.Fail(j.Flags.Here(facts.ScaleAgent+"2"), "the agent's Deployment is scaled to 0")
	}
	err = j.Say.Until(ctx, j.Timeout, "the agent", func(ctx context.Context) (bool, string, error) {
		set, err := kube.Property(ctx, j.Member, clusterset.PropertySet)
		if err != nil {
			return false, "", err
		}
		lease, err := kube.Get[*coordinationv1.Lease](ctx, j.Hub, types.NamespacedName{Namespace: j.HubNamespace,
			Name: j.ClusterID})
		if err != nil {
			return false, "", err
		}
		kept, err := leases(ctx, j.Member)
		if err != nil {
			return false, "", err
		}
		stored := facts.Named(kept, clusterset.LeaseRenewed)
		known, err := cluster.MembershipOf(ctx, j.Member)
		if err != nil {
			return false, "", err
		}
		var why string
		switch used := known.Status.Hub; { // "": an agent without a Membership
		case set == nil:
			why = whyNoMember(ctx, j.Member)
		case lease == nil || j.lease != nil && lease.ResourceVersion == j.lease.ResourceVersion:
			why = "it has not renewed its Lease on the hub yet"
		case stored == nil || stored.Annotations[clusterset.AnnotationRenewed] != kube.Version(lease):
			why = fmt.Sprintf("either it could not write Lease %s/%s, and its log says why; or another agent "+
				"renews Lease %s on the hub, and this cluster may be a clone. Only in a clone: %s",
				kube.SystemNamespace, clusterset.LeaseRenewed, j.ClusterID,
				j.Flags.Here("kubectl clusterset leave --force"))
		case used != "" && j.server != "" && used != j.server:
			why = fmt.Sprintf("it still uses the hub at %s and not at %s. A node takes up to two minutes to bring new "+
				"credentials; after that, the agent does not reach the hub there. To go back: %s", used, j.server,
				j.Flags.Here(facts.Join+" --renew --hub-server "+used))
		default:
			valid := meta.FindStatusCondition(known.Status.Conditions, hubv1alpha1.ConditionCredentialsValid)
			if valid == nil || valid.Reason != "Refused" && valid.Reason != "NoCredentials" {
				return true, "", nil
			}
			why = valid.Message // of the earlier credentials, until the agent has written it again
		}
		return false, cmp.Or(whyStopped(ctx, j.Member), why), nil
	})
	if err != nil {
		remedy := j.Flags.Here(facts.Doctor + " --hub-context=HUB")
		if j.file != "" { // it has the address
			remedy += "; for another image, run the same command with --image"
		} else {
			remedy += "; for another image, or another address of the hub, run the same command with --image or " +
				"--hub-server URL"
		}
		return report.WithRemedy(j.Member.Failed(err, "waiting for the agent"), remedy)
	}
	j.Say("%s: is a member of ClusterSet %s as %s", j.Member.Name, j.set, j.ClusterID)
	if !j.Renew {
		j.Say("next, unless this cluster's DNS answers clusterset.local already: %s\n"+
			"then, check it: %s", j.Flags.Here(facts.InstallDNS), j.Flags.Here(facts.Doctor+" --hub-context=HUB"))
	}
	return nil
}

// whyNoMember returns the agent's reason, or why its Deployment does not run.
func whyNoMember(ctx context.Context, c *cluster.Cluster) string {
	known, err := cluster.MembershipOf(ctx, c)
	if err != nil {
		return err.Error()
	}
	if ready := meta.FindStatusCondition(known.Status.Conditions, hubv1alpha1.ConditionMembershipReady); ready != nil &&
		ready.Status != metav1.ConditionTrue {
		return ready.Message
	}
	return whyDown(ctx, c, manifest.AgentDeployment)
}

// isLoopback reports whether a host is the machine itself.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
