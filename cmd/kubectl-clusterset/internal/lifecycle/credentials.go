package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/url"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The keys of the Secret. The kubeconfig names the token's file beside it.
const (
	kubeconfigKey = "kubeconfig"
	tokenKey      = "token"
)

// credentials asks the hub for a token and puts it where the agent finds it.
func (j *join) credentials(ctx context.Context) error {
	seconds := int64(j.lifetime() / time.Second)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: j.HubNamespace, Name: clusterset.AccountPrefix + j.ClusterID}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := j.Hub.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("%s: a token of %s: %w", j.Hub.Name, account.Name, err)
	}
	secret, err := j.secret(request.Status.Token)
	if err != nil {
		return err
	}
	if err := j.Member.Apply(ctx, []*unstructured.Unstructured{secret}, j.Say); err != nil {
		return err
	}
	j.Say("%s: wrote the credentials for the hub, good until %s; the agent renews them", j.Member.Name, request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339))
	return nil
}

// secret is clusterset-system/hub-kubeconfig.
func (j *join) secret(token string) (*unstructured.Unstructured, error) {
	cfg := rest.CopyConfig(j.Hub.Config)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", j.Hub.Name, err)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["hub"] = j.way(cfg)
	file.AuthInfos["member"] = &clientcmdapi.AuthInfo{TokenFile: tokenKey}
	file.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "member"}
	file.CurrentContext = "hub"
	text, err := clientcmd.Write(*file)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub},
		Data:       map[string][]byte{kubeconfigKey: text, tokenKey: []byte(token)},
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// way is how the member reaches the hub: as it does, unless another address is asked for, or the hub is another one.
func (j *join) way(cfg *rest.Config) *clientcmdapi.Cluster {
	way := &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData, TLSServerName: cfg.ServerName}
	if j.HubServer != "" {
		way.Server = j.HubServer
		return way
	}
	if was := j.keptWay(); was != nil && was.Server != way.Server {
		if bytes.Equal(bytes.TrimSpace(was.CertificateAuthorityData), bytes.TrimSpace(cfg.CAData)) {
			j.Say("the hub's address stays %s, and not %s as from here; to change it: --hub-server", was.Server, way.Server)
			way.Server, way.TLSServerName = was.Server, was.TLSServerName
		} else {
			j.Say("the hub's certificate authority is another than before, and so its address is %s, as from here, and %s no more; where the member's pods do not reach it: --hub-server", way.Server, was.Server)
		}
	}
	if u, err := url.Parse(way.Server); err == nil && doctor.Loopback(u.Hostname()) {
		j.Say("the hub's address %s is this machine's own: unless the agents run here too, give --hub-server, the address that the member's pods reach", way.Server)
	}
	return way
}

// read takes note of the credentials that the member has.
func (j *join) read(ctx context.Context) (err error) {
	if j.kept, err = kube.Get[*corev1.Secret](ctx, j.Member, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub}); err != nil {
		return fmt.Errorf("%s: %w", j.Member.Name, err)
	}
	return nil
}

// keptWay is the hub in the credentials that the member has; nil where they do not tell.
func (j *join) keptWay() *clientcmdapi.Cluster {
	if j.kept == nil {
		return nil
	}
	file, err := clientcmd.Load(j.kept.Data[kubeconfigKey])
	if err != nil || file.Contexts[file.CurrentContext] == nil {
		return nil
	}
	return file.Clusters[file.Contexts[file.CurrentContext].Cluster]
}

// What a token's lifetime may be; the hub's policy refuses more.
const shortest, longest = 10 * time.Minute, 24 * time.Hour

// lifetime is the token's: as asked for, or as that of the one that the member has.
func (j *join) lifetime() time.Duration {
	if j.TokenLifetime != 0 || j.kept == nil {
		return cmp.Or(j.TokenLifetime, longest)
	}
	token, err := clusterset.ParseToken(string(j.kept.Data[tokenKey]))
	if err != nil {
		return longest
	}
	return min(max(token.Lifetime(), shortest), longest)
}

// await waits until the agent says that it holds the claim, and lives: clusterset.k8s.io here, and its Lease renewed on the hub.
func (j *join) await(ctx context.Context) error {
	say := j.waiter("the agent")
	began := time.Now()
	err := cluster.Until(ctx, j.Timeout, func(ctx context.Context) (bool, string, error) {
		set, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, j.Member, types.NamespacedName{Name: clusterset.PropertySet})
		if err != nil {
			return false, "", err
		}
		lease, err := kube.Get[*coordinationv1.Lease](ctx, j.Hub, types.NamespacedName{Namespace: j.HubNamespace, Name: j.ClusterID})
		if err != nil {
			return false, "", err
		}
		if set != nil && lease != nil && (j.lease == nil || lease.ResourceVersion != j.lease.ResourceVersion) {
			return true, "", nil
		}
		why := agentSays(ctx, j.Member, began.Add(-Recent))
		if set != nil {
			why = "it is a member, and has not renewed its Lease on the hub yet"
		}
		if time.Since(began) > 5*time.Second {
			say(why)
		}
		return false, why, nil
	})
	if err != nil {
		return fmt.Errorf("the agent of %s does not say yet that it is a member: %w\nit goes on trying; look: kubectl clusterset doctor; another image: the same command with --image%s", j.Member.Name, err, j.undo())
	}
	j.Say("%s: is a member of clusterset %s as %s", j.Member.Name, j.set, j.ClusterID)
	if !j.Renew {
		j.Say("next, for names to be answered here: deploy/coredns/README.md; kubectl clusterset doctor tells what is missing")
	}
	return nil
}

// agentSays is the agent's last word, or what keeps its pods from running.
func agentSays(ctx context.Context, c *cluster.Cluster, since time.Time) string {
	word, err := AgentWord(ctx, c, since)
	if err != nil {
		return err.Error()
	}
	if word != "" {
		return word
	}
	return podsWait(ctx, c, "app.kubernetes.io/name", "clusterset-controller")
}

// Recent is within how long what the agent said holds: while it waits, it says so every four minutes.
const Recent = 10 * time.Minute

// AgentWord is the agent's last word since then on why it is not a member; "" where it has said nothing.
func AgentWord(ctx context.Context, c *cluster.Cluster, since time.Time) (word string, err error) {
	var events eventsv1.EventList
	if err := c.List(ctx, &events, client.InNamespace(kube.SystemNamespace)); err != nil {
		return "", err
	}
	last := since.Add(-time.Second)
	for i := range events.Items {
		e := &events.Items[i]
		if at := clock.Said(e); e.Reason == "NotAMember" && at.After(last) {
			last, word = at, e.Note
		}
	}
	return word, nil
}
