"""Names, addresses and paths of one cluster: everything that two parts of this package must agree on.

Addresses are the same in every cluster, because each has a network namespace of its own.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tools.bootstrap.cache import cache_folder
from tools.devcluster.failure import DevClusterError

NODE_IP = "10.77.0.1"  # bound to lo in the box; the kubelet refuses a loopback address, but takes another one on lo
SERVICE_NET = "10.96.0.0/24"
API_SERVICE_IP = "10.96.0.1"
POD_NET = "10.88.0.0/24"
API_PORT = 443
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
PAUSE_IMAGE = "localhost/pause:local"
GPU_RESOURCE = "nvidia.com/gpu"
REPOSITORY = Path(__file__).resolve().parents[2]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Layout:
    """One cluster's state folder; `bin` holds a link for each program so that its name chooses the part of the binary."""

    name: str
    folder: Path

    @property
    def node_name(self) -> str:
        return f"{self.name}-node"

    @property
    def cgroup(self) -> str:
        return f"hisparse-{self.name}"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def configuration(self) -> Path:
        return self.folder / "configuration"

    @property
    def logs(self) -> Path:
        return self.folder / "log"

    @property
    def held(self) -> Path:
        """A file named after a component in here keeps that component down."""
        return self.folder / "held"

    @property
    def forwards(self) -> Path:
        return self.folder / "forwards"

    @property
    def components_file(self) -> Path:
        """What pid 1 says about its components, rewritten at every change."""
        return self.folder / "components.json"

    @property
    def timeline(self) -> Path:
        return self.folder / "timeline"

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready"

    @property
    def box_file(self) -> Path:
        return self.folder / "box.json"

    @property
    def kubeconfig(self) -> Path:
        """For programs outside of the box."""
        return self.folder / "kubeconfig"

    @property
    def inner_kubeconfig(self) -> Path:
        """For programs inside of the box."""
        return self.pki / "admin.kubeconfig"

    def log_of(self, component: str) -> Path:
        return self.logs / f"{component}.log"


def clusters_folder() -> Path:
    return cache_folder("clusters")


def layout_of(name: str) -> Layout:
    """The layout of cluster `name`; nothing is made on disk."""
    if not _NAME.fullmatch(name):
        raise DevClusterError(f"cluster name {name!r}: use at most 40 lower case letters, digits and dashes, for example demo")
    return Layout(name=name, folder=clusters_folder() / name)
