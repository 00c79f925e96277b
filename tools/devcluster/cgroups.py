"""The cgroup subtree that holds the pods of one cluster: easy to see, easy to remove."""

import time
from dataclasses import dataclass
from pathlib import Path

from tools.devcluster.failure import DevClusterError

# The kubelet refuses to start on cgroup v2 without these.
NEEDED_V2 = frozenset({"cpu", "cpuset", "memory", "pids"})
WANTED_V2 = ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where cgroups are mounted. v1 has a mount for each controller; a v2 mount beside them (hybrid) has no controllers."""

    v1: tuple[Path, ...]
    v2: Path | None

    def folders(self, name: str) -> list[Path]:
        """What the kubelet needs."""
        if self.v1:
            return [mount / name for mount in self.v1]
        return [self.v2 / name] if self.v2 else []

    def possible_folders(self, name: str) -> list[Path]:
        """What may be left: on hybrid machines runc makes a folder in the v2 mount too."""
        return [mount / name for mount in (*self.v1, *([self.v2] if self.v2 else []))]


def read_hierarchies(mounts: str) -> Hierarchies:
    """From the text of /proc/self/mounts. A controller that is mounted twice counts once, at its first place."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in mounts.splitlines():
        _, mount_point, kind, options, *_ = line.split()
        if kind == "cgroup":
            controllers = ",".join(option for option in options.split(",") if option not in {"rw", "ro"})
            v1.setdefault(controllers, Path(mount_point))
        elif kind == "cgroup2" and v2 is None:
            v2 = Path(mount_point)
    return Hierarchies(v1=tuple(v1.values()), v2=v2)


def machine_hierarchies() -> Hierarchies:
    return read_hierarchies(Path("/proc/self/mounts").read_text())


def make_subtree(name: str, *, hierarchies: Hierarchies) -> None:
    """Makes the subtree in every hierarchy, systemd's too: the kubelet demands its root in each of them."""
    if not hierarchies.folders(name):
        raise DevClusterError("no cgroup file system is mounted; mount one: mount -t cgroup2 none /sys/fs/cgroup")
    try:
        if not hierarchies.v1 and hierarchies.v2:
            _enable_v2_controllers(hierarchies.v2)
        for folder in hierarchies.folders(name):
            folder.mkdir(exist_ok=True)
            _copy_cpuset(folder)
        if not hierarchies.v1 and hierarchies.v2:
            _enable_v2_controllers(hierarchies.v2 / name)
    except OSError as error:
        raise DevClusterError(
            f"the cgroup {name} cannot be made ({error}); in a container /sys/fs/cgroup must be writable, "
            "and on cgroup v2 the container's own processes must not sit in its root (privileged, a cgroup namespace of its own)"
        ) from error


def _copy_cpuset(folder: Path) -> None:
    """A new v1 cpuset is empty, and nothing may run in an empty one."""
    if (folder / "cpuset.cpus").exists() and (folder.parent / "cpuset.cpus").exists():
        for file in ("cpuset.cpus", "cpuset.mems"):
            (folder / file).write_text((folder.parent / file).read_text())


def _enable_v2_controllers(folder: Path) -> None:
    available = set((folder / "cgroup.controllers").read_text().split())
    missing = sorted(NEEDED_V2 - available)
    if missing:
        raise DevClusterError(
            f"{folder}/cgroup.controllers lacks {', '.join(missing)}; enable them in the parent's cgroup.subtree_control"
        )
    for controller in WANTED_V2:
        if controller in available:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def remove_subtree(name: str, *, hierarchies: Hierarchies, timeout_seconds: float = 20) -> None:
    """Removes the subtree depth first; a cgroup is busy for some 100 ms after its last process has died."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        left = [folder for folder in hierarchies.possible_folders(name) if not _remove_tree(folder)]
        if not left:
            return
        if time.monotonic() > deadline:
            raise DevClusterError(
                f"cgroup {left[0]} still has processes {timeout_seconds:.0f} s after the box was ended; see its cgroup.procs"
            )
        time.sleep(0.05)


def _remove_tree(folder: Path) -> bool:
    """True when it is gone. The files in a cgroup belong to it and go with it, so only folders are walked."""
    if not folder.exists():
        return True
    try:
        children = [child for child in folder.iterdir() if child.is_dir()]
        gone = [_remove_tree(child) for child in children]  # a list: one busy child must not keep the others from being removed
        if not all(gone):
            return False
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
