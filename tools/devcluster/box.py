"""Pid 1 of the box: makes the namespaces a place for a node, starts the components, and looks after them.

What is seen inside, and why:
    /run, /var/log   tmpfs       sockets and the hard-coded /var/log/containers stay off the machine
    /var/lib         overlay     /var/lib/kubelet/device-plugins and /var/lib/cni are hard-coded too
    /proc            own         from unshare --mount-proc
    everything else  the machine's, at the same paths: programs, archives and tests keep their names
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.devcluster.api_probe import ApiProbe
from tools.devcluster.configuration import components, write_configuration
from tools.devcluster.environment import inner_environment
from tools.devcluster.layout import CONTAINERD_SOCKET, NODE_IP, SERVICE_NET, Layout
from tools.devcluster.machine import cni_folder, search_path
from tools.devcluster.supervisor import Supervisor


def main(arguments: list[str]) -> None:
    """`python -m tools.devcluster.box FOLDER PAUSE_ARCHIVE BEGIN`; BEGIN is `up`'s start on the monotonic clock."""
    folder, pause_archive, begin_seconds = Path(arguments[0]), Path(arguments[1]), float(arguments[2])
    layout = Layout(name=folder.name, folder=folder)
    timeline = layout.timeline.open("a", buffering=1)

    def mark(text: str) -> None:
        timeline.write(f"[{time.monotonic() - begin_seconds:6.1f} s] {text}\n")

    isolate(layout)
    cni_plugins = cni_folder()
    assert cni_plugins is not None, "checked by `up`"
    write_configuration(layout, cni_plugins=cni_plugins)
    supervisor = Supervisor(
        log_of=layout.log_of, held=layout.held, state_file=layout.components_file, environment=inner_environment(layout)
    )
    bring_up(layout, supervisor=supervisor, pause_archive=pause_archive, mark=mark)
    layout.ready_file.touch()
    while True:
        supervisor.turn(timeout_seconds=60)


def isolate(layout: Layout) -> None:
    """Mounts, host name and addresses. Everything here ends with the namespaces."""
    _run("mount", "--make-rshared", "/")  # shared within the box only: pods with mount propagation need it
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for path in ("/run/netns", "/run/lock", "/run/containerd", "/run/var-lib/upper", "/run/var-lib/work"):
        Path(path).mkdir(parents=True)
    _run(
        "mount",
        "-t",
        "overlay",
        "-o",
        "lowerdir=/var/lib,upperdir=/run/var-lib/upper,workdir=/run/var-lib/work",
        "overlay",
        "/var/lib",
    )
    for path in ("/var/lib/kubelet", "/var/lib/cni"):
        Path(path).mkdir(exist_ok=True)
    kubelet = layout.folder / "kubelet"
    kubelet.mkdir()
    _run("mount", "--bind", str(kubelet), "/var/lib/kubelet")  # emptyDirs belong on the disk, not in the tmpfs
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/var/log")
    socket.sethostname(layout.node_name)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{NODE_IP}/32", "dev", "lo")
    # Service addresses are translated after the route look-up, and the box has no default route.
    _run("ip", "route", "add", SERVICE_NET, "dev", "lo", "src", NODE_IP)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def bring_up(layout: Layout, *, supervisor: Supervisor, pause_archive: Path, mark: Callable[[str], None]) -> None:
    """In the order of need; everything that needs nothing is started at once."""
    parts = components(layout)
    for part in (part for part in parts if not part.needs_api):
        supervisor.start(part)
    supervisor.run_until(lambda: _accepts(CONTAINERD_SOCKET))
    mark("containerd answers")
    exit_code = supervisor.run_once("pause-image", ["ctr", "--namespace", "k8s.io", "images", "import", str(pause_archive)])
    if exit_code:
        raise SystemExit(f"the pause image {pause_archive} was not imported: ctr ended with {exit_code}, see log/pause-image.log")
    mark("pause image imported")
    probe = ApiProbe.of_kubeconfig(layout.inner_kubeconfig)
    supervisor.run_until(probe.is_ready)
    mark("API server ready")
    for part in (part for part in parts if part.needs_api):
        supervisor.start(part)
    supervisor.run_until(lambda: probe.is_node_ready(layout.node_name))
    mark(f"node {layout.node_name} Ready")
    supervisor.run_until(probe.has_default_service_account)
    mark("default service account there: pods can be made")


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, "PATH": search_path()})


if __name__ == "__main__":
    main(sys.argv[1:])
