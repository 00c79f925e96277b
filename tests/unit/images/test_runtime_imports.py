"""What our wheel imports in vLLM's image, where no dependency of ours is installed: only what vLLM brings itself."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "runtime" / "hisparse_runtime" / "vllm"
# Import name -> distribution.
FROM_VLLM = {
    "annotated_types": "annotated-types",
    "prometheus_client": "prometheus-client",
    "pydantic": "pydantic",
    "pydantic_core": "pydantic-core",
    "typing_extensions": "typing-extensions",
    "typing_inspection": "typing-inspection",
}
# A command line for people: fastapi[standard], which vLLM asks for, brings it. No pod starts by it.
COMMAND_LINES = ("hisparse_runtime.vllm.preflight.__main__",)
FOR_COMMAND_LINES = {
    "annotated_doc": "annotated-doc",
    "markdown_it": "markdown-it-py",
    "mdurl": "mdurl",
    "pygments": "pygments",
    "rich": "rich",
    "shellingham": "shellingham",
    "typer": "typer",
}
# vLLM loads these into its own processes.
LOADED_BY_VLLM = "hisparse_runtime.vllm.telemetry."
IMPORT_ALL = """
import importlib, json, sys
first, last = json.loads(sys.argv[1])
def externals():
    return sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - before)
before = {name.partition(".")[0] for name in sys.modules}
without = {}
for name in first:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        without[name] = error.name.partition(".")[0]
loaded = externals()
for name in last:
    importlib.import_module(name)
print(json.dumps({"loaded": loaded, "with_command_lines": externals(), "without": without}))
"""


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / "runtime").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {_module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def test_everything_that_a_pod_runs_imports_only_what_vllm_brings() -> None:
    first = [name for name in MODULES if name not in COMMAND_LINES]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, json.dumps([first, COMMAND_LINES])],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    ours = {"hisparse_runtime"}
    # Modules that Python's own start-up files bring here are no imports of ours.
    loaded = {name for name in answer["loaded"] if not name.startswith("_sysconfigdata")}
    assert loaded - ours <= set(FROM_VLLM)
    assert set(answer["with_command_lines"]) - loaded <= {*FOR_COMMAND_LINES, *answer["loaded"]}
    assert {name for name in answer["without"] if not name.startswith(LOADED_BY_VLLM)} == set()
    assert set(answer["without"].values()) <= {"vllm", "torch"}


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith(LOADED_BY_VLLM)])
def test_what_vllm_loads_imports_nothing_else(name: str) -> None:
    """By its text, because vLLM is not here."""
    imported = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])
    assert imported - set(sys.stdlib_module_names) <= {"hisparse_runtime", "vllm", "torch", *FROM_VLLM}


def test_what_vllm_brings_is_in_the_locked_set_of_its_packages() -> None:
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "vllm.txt").read_text(encoding="utf-8"), re.MULTILINE))
    assert {*FROM_VLLM.values(), *FOR_COMMAND_LINES.values()} <= locked
