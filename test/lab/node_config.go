package lab

// pluginFolders are where CNI plugins are, by distribution.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin"}

// PauseImage is the one that holds a Pod's namespaces. Nothing is pulled: whoever starts a node imports it.
const PauseImage = "registry.k8s.io/pause:3.10"

// containerd1 is the configuration of containerd 1.x, for the folders of CNI plugins and of their configuration.
// The processes of a container may lack CAP_SYS_RESOURCE.
const containerd1 = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`

// containerd2 is the same for containerd 2.x.
const containerd2 = `version = 3
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "` + PauseImage + `"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = [%q]
    conf_dir = %q
[plugins.'io.containerd.grpc.v1.cri']
  stream_server_address = "127.0.0.1"
`

// cniConfig is a link per Pod, and no address translation: the network routes Pods.
const cniConfig = `{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "ptp", "ipMasq": false,
 "ipam": {"type": "host-local", "ranges": [%s], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}}]}
`

// kubeletConfig is for a cgroup, the cluster's DNS and the node's resolv.conf. Its port is open to the API server
// without a certificate, and to nobody else: it is in the laboratory's network.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}, x509: {}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [%q]
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: %q
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%}
nodeStatusUpdateFrequency: 4s
syncFrequency: 10s
`
