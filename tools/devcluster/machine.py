"""What the machine must have, and what the kubelet changes on it for all: checked before, put back after."""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.devcluster.failure import DevClusterError

# Package by program; util-linux also has setsid and nsenter. mount is essential in Debian, but not in every container image.
PACKAGE_OF_PROGRAM = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "openssl": "openssl",
}
CNI_PACKAGE = "containernetworking-plugins"
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
DEBIAN_PACKAGES = tuple(sorted({*PACKAGE_OF_PROGRAM.values(), CNI_PACKAGE}))
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SYSCTL_ROOT = Path("/proc/sys")
# Machine-wide settings that the kubelet writes at its start.
_SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "overlay", "nfs", "nfs4", "9p", "virtiofs", "fuse"})
_HIDDEN_IN_BOX = (Path("/run"), Path("/var/lib"), Path("/var/log"))


def search_path() -> str:
    """PATH with the system's folders: a non-login root shell lacks sbin."""
    return f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}".lstrip(":")


def check_platform() -> None:
    if not sys.platform.startswith("linux"):
        raise DevClusterError(f"a cluster from binaries needs Linux namespaces, this is {sys.platform}; use a cluster you have")
    if os.geteuid() != 0:
        raise DevClusterError(
            "a cluster from binaries needs root for namespaces, mounts and cgroups; run it as root, or use a cluster you have"
        )


def check_programs() -> None:
    """One error for everything that is missing."""
    missing = {package for program, package in PACKAGE_OF_PROGRAM.items() if shutil.which(program, path=search_path()) is None}
    absent = [program for program in PACKAGE_OF_PROGRAM if shutil.which(program, path=search_path()) is None]
    if cni_folder() is None:
        missing.add(CNI_PACKAGE)
        absent.append(f"the network plugins {', '.join(CNI_PLUGINS)} in {' or '.join(str(folder) for folder in CNI_FOLDERS)}")
    if missing:
        raise DevClusterError(
            f"not on this machine: {', '.join(absent)}\n"
            f"Install them: apt-get install --no-install-recommends {' '.join(sorted(missing))}"
        )


def cni_folder() -> Path | None:
    return next((folder for folder in CNI_FOLDERS if all((folder / plugin).exists() for plugin in CNI_PLUGINS)), None)


def check_disk(folder: Path) -> None:
    """containerd keeps overlay layers in `folder`, which a file system in memory or another overlay cannot carry."""
    hint = "set XDG_CACHE_HOME to a folder on a local disk"
    if any(folder.is_relative_to(hidden) for hidden in _HIDDEN_IN_BOX):
        raise DevClusterError(f"the state folder {folder} lies where the box has mounts of its own; {hint}")
    kind = file_system_of(folder, mounts=Path("/proc/self/mounts").read_text())
    if kind in _MEMORY_FILE_SYSTEMS:
        raise DevClusterError(f"the state folder {folder} is on {kind}, which cannot hold image layers; {hint}")


def file_system_of(folder: Path, *, mounts: str) -> str:
    """Type of the file system of `folder` by the text of /proc/self/mounts; the last longest mount point covers the others."""
    best, kind = Path("/"), "unknown"
    for line in mounts.splitlines():
        _, mount_point, line_kind, *_ = line.split()
        path = Path(mount_point.replace("\\040", " "))
        if folder.is_relative_to(path) and len(path.parts) >= len(best.parts):
            best, kind = path, line_kind
    return kind


@contextmanager
def machine_lock(folder: Path) -> Iterator[None]:
    """One at a time on this machine, without a lock file: the folder itself is locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def keep_settings(name: str, *, folder: Path, root: Path = _SYSCTL_ROOT) -> None:
    """Notes the settings before the first cluster changes them; `folder` is that of all clusters."""
    with machine_lock(folder):
        users, settings = _read_kept(folder) or ([], _read_settings(root))
        _write_kept(folder, users=sorted({*users, name}), settings=settings)


def restore_settings(name: str, *, folder: Path, root: Path = _SYSCTL_ROOT) -> None:
    """Puts the settings back with the last cluster that used them."""
    with machine_lock(folder):
        kept = _read_kept(folder)
        if kept is None:
            _kept_file(folder).unlink(missing_ok=True)
            return
        users, settings = kept
        users = [user for user in users if user != name and (folder / user).is_dir()]
        if users:
            _write_kept(folder, users=users, settings=settings)
            return
        for key, value in settings.items():
            path = root / key
            if path.read_text().strip() != value:
                path.write_text(value)
        _kept_file(folder).unlink()


def _kept_file(folder: Path) -> Path:
    return folder / "machine-settings.json"


def _read_settings(root: Path) -> dict[str, str]:
    return {key: path.read_text().strip() for key in _SYSCTLS if (path := root / key).exists()}


def _read_kept(folder: Path) -> tuple[list[str], dict[str, str]] | None:
    """None when nothing is kept; what was kept before a reboot is void."""
    path = _kept_file(folder)
    if not path.exists():
        return None
    document = json.loads(path.read_text())
    return (document["users"], document["settings"]) if document["boot_id"] == _boot_id() else None


def _write_kept(folder: Path, *, users: list[str], settings: dict[str, str]) -> None:
    temporary = _kept_file(folder).with_suffix(".new")
    temporary.write_text(json.dumps({"boot_id": _boot_id(), "users": users, "settings": settings}, indent=1))
    temporary.replace(_kept_file(folder))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
