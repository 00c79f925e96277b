"""What preflight reads of an installed vLLM, on every release as it is installed."""

import sys
from pathlib import Path

import pytest

from hisparse_runtime.vllm.dialects import Dialect, dialect_of_fields
from hisparse_runtime.vllm.preflight.container.installed import installed_vllm
from tools.upstream import VERSIONS, upstream

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_is_known_by_its_version_and_its_dialect_without_an_import(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = upstream(version)
    tree = release.environment["PYTHONPATH"]
    (packages,) = release.python.parent.parent.glob("lib/python3*/site-packages")
    monkeypatch.setattr(sys, "path", [tree, str(packages)])
    found = installed_vllm(Path("/"))
    assert found is not None
    assert found.version.startswith(f"{version}.")
    assert found.hisparse_fields is not None
    assert dialect_of_fields(found.hisparse_fields) is Dialect.CONNECTOR
    assert "device_buffer_size" in found.hisparse_fields
    assert "vllm" not in sys.modules
