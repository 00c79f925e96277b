"""Debian packages: only those whose programs are missing, in one apt-get call."""

import importlib.util
import shutil
from pathlib import Path

from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.process import run
from tools.bootstrap.timeline import Timeline

IMAGE_PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}  # program -> package
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
LISTS = Path("/var/lib/apt/lists")


def install_packages(*, cluster: bool, images: bool, timeline: Timeline) -> None:
    """Programs count, not packages: containerd from Docker's packages is as good as Debian's, and the two exclude each other."""
    packages = missing_packages(cluster=cluster, images=images)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise BootstrapError(f"missing, and no apt-get to install it: {', '.join(packages)} (Debian's names)")
    with timeline.step("Debian packages", " ".join(packages)):
        if not any(LISTS.glob("*_Packages*")):
            _apt_get("update")
        try:
            _apt_get("install", *packages)
        except BootstrapError:
            timeline.say("Debian packages: package lists may be out of date; updating them and trying again")
            _apt_get("update")
            _apt_get("install", *packages)


def missing_packages(*, cluster: bool, images: bool) -> list[str]:
    needed: dict[str, str] = {}
    missing = set()
    if cluster:
        from tools.devcluster.machine import CNI_PACKAGE, PACKAGE_OF_PROGRAM, cni_folder  # noqa: PLC0415  imported on Linux only

        needed |= PACKAGE_OF_PROGRAM
        if cni_folder() is None:
            missing.add(CNI_PACKAGE)
    if images:
        needed |= IMAGE_PROGRAMS
    if not CERTIFICATES.exists():
        missing.add("ca-certificates")
    if importlib.util.find_spec("ensurepip") is None:  # Debian keeps it in a package of its own
        missing.add("python3-venv")
    missing |= {package for program, package in needed.items() if shutil.which(program, path=_search_path()) is None}
    return sorted(missing)


def _apt_get(verb: str, *packages: str) -> None:
    options = ["-y", "--no-install-recommends"] if verb == "install" else []
    run(["apt-get", "-q", verb, *options, *packages], environment={"DEBIAN_FRONTEND": "noninteractive"})


def _search_path() -> str:
    """A shell of `su` lacks sbin, where half of these programs live."""
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
