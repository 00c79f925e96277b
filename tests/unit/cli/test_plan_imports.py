"""What a process of `hisparse plan` loads: it is meant to answer at once, and on machines that have no GPU software."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.plan_runs import GLM, GLM_DEPLOYMENT

_NEVER = {
    "torch",
    "vllm",
    "numpy",
    "matplotlib",
    "kubernetes",
    "kopf",
    "aiohttp",
    "httpx",
    "fastapi",
    "uvicorn",
    "prometheus_client",
}
_CODE = """\
import json, sys
from hisparse_runtime.cli import app
try:
    app(json.loads(sys.argv[1]))
except SystemExit as end:
    print(json.dumps({"code": end.code, "modules": sorted({name.partition(".")[0] for name in sys.modules})}), file=sys.stderr)
"""


def _loaded(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", _CODE, json.dumps(["plan", *arguments])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ended = json.loads(done.stderr)
    assert ended["code"] == 0
    return set(ended["modules"])


@pytest.mark.parametrize("more", [(), ("-o", "json"), ("-o", "yaml"), ("--compare", "64K,1M"), ("--explain",)])
def test_flags_load_neither_engines_nor_clients_nor_the_operator(more: tuple[str, ...]) -> None:
    assert not _loaded(*GLM, *more) & (_NEVER | {"hisparse_operator", "pydantic"})


def test_json_needs_no_rich_and_a_table_no_yaml() -> None:
    assert not _loaded(*GLM, "-o", "json") & {"rich", "yaml"}
    assert "yaml" not in _loaded(*GLM)


def test_a_file_loads_the_operators_models_and_no_client(tmp_path: Path) -> None:
    path = tmp_path / "glm.yaml"
    path.write_text(GLM_DEPLOYMENT)
    loaded = _loaded("-f", str(path))
    assert "hisparse_operator" in loaded
    assert not loaded & _NEVER
