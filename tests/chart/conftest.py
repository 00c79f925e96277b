"""`render(values...)` by a real helm."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.bootstrap import Timeline
from tools.bootstrap.helm import require_helm

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "hisparse-operator"

Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm() -> Path:
    found = require_helm(Timeline())
    if found is None:
        pytest.skip("no helm on PATH, and the one of the cluster's binaries is built on Linux only")
    return found


@pytest.fixture(scope="session")
def render(helm: Path) -> Render:
    """Objects of the chart for `--set` words; a refusal is a CalledProcessError with helm's message in `stderr`."""

    def run(*sets: str, release: str = "demo", namespace: str = "system") -> list[dict[str, Any]]:
        options = [word for text in sets for word in ("--set", text)]
        command = [str(helm), "template", release, str(CHART), "--namespace", namespace, "--kube-version", "1.37.0", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return run
