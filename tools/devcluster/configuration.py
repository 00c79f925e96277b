"""Configuration files and command lines of the components; each setting that is not a default says what taught it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.devcluster.layout import API_PORT, CONTAINERD_SOCKET, NODE_IP, PAUSE_IMAGE, POD_NET, SERVICE_NET, Layout

_ETCD = "http://127.0.0.1:2379"  # plain: pods have network namespaces of their own and cannot reach the box's loopback


@dataclass(frozen=True, slots=True)
class Component:
    """A program that pid 1 keeps running. `needs_api`: it is started once the API server answers."""

    name: str
    command: tuple[str, ...]
    needs_api: bool = False


def write_configuration(layout: Layout, *, cni_plugins: Path) -> None:
    """Fills `layout.configuration`."""
    folder = layout.configuration
    (folder / "cni").mkdir(parents=True)
    (folder / "containerd.toml").write_text(containerd_configuration(layout, cni_plugins=cni_plugins))
    _write_json(folder / "cni" / "10-pods.conflist", network_configuration())
    _write_json(folder / "kubelet.json", kubelet_configuration(layout))
    _write_json(folder / "proxy.json", proxy_configuration(layout))


def components(layout: Layout) -> tuple[Component, ...]:
    """In the order of their start."""
    pki, configuration, program = layout.pki, layout.configuration, layout.bin
    etcd = _words(
        program / "etcd",
        {
            "data-dir": layout.folder / "etcd",
            "unsafe-no-fsync": "true",  # the data is thrown away with the box
            "listen-client-urls": _ETCD,
            "advertise-client-urls": _ETCD,
            "listen-peer-urls": "http://127.0.0.1:2380",
            "log-level": "warn",
        },
    )
    apiserver = _words(
        program / "kube-apiserver",
        {
            "etcd-servers": _ETCD,
            "bind-address": "0.0.0.0",  # noqa: S104  all of the box, which no one outside can reach
            "secure-port": API_PORT,
            "advertise-address": NODE_IP,
            "service-cluster-ip-range": SERVICE_NET,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "client-ca-file": pki / "ca.crt",
            "tls-cert-file": pki / "apiserver.crt",
            "tls-private-key-file": pki / "apiserver.key",
            "kubelet-client-certificate": pki / "apiserver-to-kubelet.crt",
            "kubelet-client-key": pki / "apiserver-to-kubelet.key",
            "kubelet-certificate-authority": pki / "ca.crt",
            "kubelet-preferred-address-types": "InternalIP",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": pki / "service-accounts.pub",
            "service-account-signing-key-file": pki / "service-accounts.key",
            "profiling": "false",
        },
    )
    controller_manager = _words(
        program / "kube-controller-manager",
        {
            "kubeconfig": pki / "controller-manager.kubeconfig",
            "bind-address": "127.0.0.1",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": pki / "service-accounts.key",
            "root-ca-file": pki / "ca.crt",
            "leader-elect": "false",
            "profiling": "false",
            # It makes an account and a token for each of its controllers first: at the default 20 qps that takes 5 s.
            "kube-api-qps": 500,
            "kube-api-burst": 500,
        },
    )
    scheduler = _words(
        program / "kube-scheduler",
        {"kubeconfig": pki / "scheduler.kubeconfig", "bind-address": "127.0.0.1", "leader-elect": "false", "profiling": "false"},
    )
    kubelet = _words(
        program / "kubelet",
        {
            "config": configuration / "kubelet.json",
            "kubeconfig": pki / "kubelet.kubeconfig",
            "hostname-override": layout.node_name,
            "node-ip": NODE_IP,
        },
    )
    proxy = _words(program / "kube-proxy", {"config": configuration / "proxy.json"})
    return (
        Component("etcd", etcd),
        Component("containerd", ("containerd", "-c", str(configuration / "containerd.toml"))),
        Component("apiserver", apiserver),
        Component("controller-manager", controller_manager, needs_api=True),
        Component("scheduler", scheduler, needs_api=True),
        Component("kubelet", kubelet, needs_api=True),
        Component("proxy", proxy, needs_api=True),
    )


COMPONENT_NAMES = ("etcd", "containerd", "apiserver", "controller-manager", "scheduler", "kubelet", "proxy")


def containerd_configuration(layout: Layout, *, cni_plugins: Path) -> str:
    disabled = [
        "snapshotter.v1.aufs",
        "snapshotter.v1.btrfs",
        "snapshotter.v1.zfs",
        "snapshotter.v1.devmapper",
        "internal.v1.opt",
    ]
    names = [f"io.containerd.{name}" for name in disabled] + ["io.containerd.tracing.processor.v1.otlp"]
    return f"""\
version = 2
root = {json.dumps(str(layout.folder / "containerd"))}
state = "/run/containerd"
disabled_plugins = {json.dumps(names)}

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  stream_server_address = "127.0.0.1"
  # The pause container asks for an OOM score of -998, and a machine without CAP_SYS_RESOURCE cannot give it.
  restrict_oom_score_adj = true

  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"

    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"

      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false

  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {json.dumps(str(cni_plugins))}
    conf_dir = {json.dumps(str(layout.configuration / "cni"))}
"""


def network_configuration() -> dict[str, object]:
    """A bridge and nothing else: the node's address on lo is reachable through its gateway, so nothing is masqueraded."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": POD_NET}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipMasq": False, "ipam": addresses}
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def kubelet_configuration(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,  # since 1.35 a kubelet refuses cgroup v1 unless told otherwise
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "address": NODE_IP,
        "tlsCertFile": str(layout.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "podLogsDir": str(layout.folder / "pod-logs"),
        "resolvConf": "",
        # The disk is the developer's: a full one must not evict pods, nor an image be collected that no registry can give back.
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        # A patched capacity becomes allocatable with the next look at the status, so look often and report only changes.
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "5m",
    }


def proxy_configuration(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": POD_NET,
        "hostnameOverride": layout.node_name,
        "bindAddress": NODE_IP,
        "clientConnection": {"kubeconfig": str(layout.pki / "proxy.kubeconfig")},
        # The conntrack sysctls are read-only in a network namespace of one's own.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _words(program: Path, flags: Mapping[str, str | int | Path]) -> tuple[str, ...]:
    return (str(program), *(f"--{name}={value}" for name, value in flags.items()))


def _write_json(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document, indent=1) + "\n")
