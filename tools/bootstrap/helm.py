"""Which helm is used for lint and the chart's tests."""

import os
import shutil
from pathlib import Path

from tools.bootstrap.machine import is_linux
from tools.bootstrap.timeline import Timeline


def find_helm(timeline: Timeline) -> Path | None:
    """$KUBEBUILDER_ASSETS, then the cluster's binaries (built when they are not there), then PATH; None off Linux without one."""
    if is_linux():
        from tools.devcluster.binaries import assets_of, program_paths  # noqa: PLC0415  imported on Linux only

        return assets_of(os.environ).get("helm") or program_paths(report=timeline.say)["helm"]
    found = shutil.which("helm")
    return Path(found) if found else None
