"""Which helm is used for lint and the chart's tests."""

import os
import shutil
from pathlib import Path

from tools.bootstrap.cache import cache_folder
from tools.bootstrap.machine import is_linux
from tools.bootstrap.timeline import Timeline


def find_helm() -> Path | None:
    """The one in $KUBEBUILDER_ASSETS, else the newest that was built for the cluster, else that on PATH. Builds nothing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    built = sorted(cache_folder("binaries").glob("kube-*/helm"), key=lambda path: path.stat().st_mtime, reverse=True)
    candidates = [*([Path(assets) / "helm"] if assets else []), *built]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    found = shutil.which("helm")
    return Path(found) if found else None


def require_helm(timeline: Timeline) -> Path | None:
    """`find_helm`, building the cluster's binaries when there is none; None only off Linux, where they cannot be built."""
    if found := find_helm():
        return found
    if not is_linux():
        return None
    from tools.devcluster.binaries import program_paths  # noqa: PLC0415  imported on Linux only

    return program_paths(report=timeline.say)["helm"]
