"""The programs of the cluster: Kubernetes, etcd, kubectl and helm as one binary, built once and kept in the cache.

Programs found in $KUBEBUILDER_ASSETS are preferred, each by its name.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.bootstrap.cache import cache_folder
from tools.devcluster import golang
from tools.devcluster.failure import DevClusterError
from tools.devcluster.golang import Report

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "helm")
_MODULE = Path(__file__).resolve().parent / "kube"
_SOURCES = ("main.go", "go.mod", "go.sum")
_KEY_LENGTH = 16
_KEPT_BUILDS = 2  # the present one, and that of the branch before


def program_paths(*, report: Report) -> dict[str, Path]:
    """Path of each program; builds what is neither in $KUBEBUILDER_ASSETS nor in the cache."""
    assets = assets_of(os.environ)
    if len(assets) == len(PROGRAMS):
        report(f"binaries: all from {assets['etcd'].parent}")
        return assets
    built = _built_folder(report=report)
    return {name: assets.get(name, built / name) for name in PROGRAMS}


def assets_of(environment: Mapping[str, str]) -> dict[str, Path]:
    """The programs in $KUBEBUILDER_ASSETS that can be run."""
    folder = environment.get("KUBEBUILDER_ASSETS", "")
    if not folder:
        return {}
    return {name: path for name in PROGRAMS if os.access(path := Path(folder).absolute() / name, os.X_OK) and path.is_file()}


def versions_of(go_mod: str) -> dict[str, str]:
    """Versions by module path of the direct requirements in a go.mod."""
    return {match[1]: match[2] for match in re.finditer(r"^\s+(\S+) (v\S+)$", go_mod, re.MULTILINE)}


def linker_flags(go_mod: str) -> list[str]:
    """Without these, nodes and `kubectl version` report v0.0.0-master, and helm its minor version only."""
    versions = versions_of(go_mod)
    kubernetes, helm = versions["k8s.io/kubernetes"], versions["helm.sh/helm/v4"]
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    values = {
        "k8s.io/component-base/version.gitVersion": kubernetes,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": kubernetes,
        "helm.sh/helm/v4/internal/version.version": helm,
    }
    return [f"-X {name}={value}" for name, value in values.items()]


def source_key(files: Mapping[str, bytes], *, salt: str) -> str:
    """A name that changes with any source, the flags or the architecture."""
    digest = hashlib.sha256(salt.encode())
    for name, content in sorted(files.items()):
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:_KEY_LENGTH]


def link_programs(paths: Mapping[str, Path], *, folder: Path) -> None:
    """`folder` gets a link for each program. Links keep the name, and the name chooses the part of the one binary."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)


def _built_folder(*, report: Report) -> Path:
    files = {name: (_MODULE / name).read_bytes() for name in _SOURCES}
    go_mod = files["go.mod"].decode()
    flags = linker_flags(go_mod)
    folder = cache_folder("binaries")
    target = folder / f"kube-{source_key(files, salt=platform.machine() + ' '.join(flags))}"
    if target.is_dir():
        return target
    with build_lock(folder, report=report):
        if not target.is_dir():
            _build(target, flags=flags, version=versions_of(go_mod)["k8s.io/kubernetes"], report=report)
        _prune(folder, keep=target)
    return target


def _build(target: Path, *, flags: list[str], version: str, report: Report) -> None:
    go = golang.find_go(report=report)
    what = f"kubernetes {version}, etcd, kubectl and helm"
    report(f"{what}: building one binary with {go}; some 12 minutes on two cores, once")
    begin_seconds = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as temporary:
        made = Path(temporary) / "bin"
        made.mkdir()
        golang.build(go, module=_MODULE, output=made / "kube", linker_flags=flags, what=what, report=report)
        for name in PROGRAMS:
            (made / name).symlink_to("kube")
        made.rename(target)
    size_mb = (target / "kube").stat().st_size / 1e6
    report(f"{what}: {size_mb:.0f} MB in {time.monotonic() - begin_seconds:.0f} s, kept in {target}")


def _prune(folder: Path, *, keep: Path) -> None:
    """Old builds are 170 MB each."""
    builds = sorted(folder.glob("kube-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in [path for path in builds if path != keep][_KEPT_BUILDS - 1 :]:
        shutil.rmtree(old)


@contextmanager
def build_lock(folder: Path, *, report: Report) -> Iterator[None]:
    """Waits for another build in `folder`, and says so."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"another process builds in {folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise DevClusterError(
                f"{folder} cannot be locked ({error}); set XDG_CACHE_HOME to a folder on a local disk"
            ) from error
        yield
