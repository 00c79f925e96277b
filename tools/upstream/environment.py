"""vLLM 0.32 for a CPU with all that it needs in one virtual environment; the other versions are package trees laid over it.

Their dependencies differ in nothing that planning, arguments or scheduling import, so one environment of 4 GB serves all four.
"""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.bootstrap.cache import cache_folder, make_once
from tools.bootstrap.environment import PYTHON, REPOSITORY
from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.locked_install import install_with_uv
from tools.bootstrap.process import run
from tools.bootstrap.timeline import Timeline
from tools.upstream.machine import reason_unsupported
from tools.upstream.trees import locked_wheels, make_tree

LOCK = REPOSITORY / "requirements" / "vllm.txt"
INSTALLED_VERSION = "0.32"
ADVICE = "python3 -m tools.bootstrap test"
KEY_LENGTH = 12
# torch comes with the libraries of a GPU. Those that importing it does not open are of no use here: a quarter of the whole.
REMOVE_UNOPENED = """
import pathlib, torch
opened = {line.split(maxsplit=5)[-1].strip() for line in open("/proc/self/maps")}
root = pathlib.Path(torch.__file__).resolve().parents[1] / "nvidia"
for path in root.rglob("*"):
    if path.is_file() and path.suffix != ".py" and str(path) not in opened:
        path.unlink()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """How to run a program inside one version of vLLM: `python` with `environment` added to the caller's variables."""

    version: str
    python: Path
    environment: Mapping[str, str]


def upstream(version: str) -> Upstream:
    """One of VERSIONS as `prepare` made it. BootstrapError where it did not, or the machine cannot have it."""
    if reason := reason_unsupported():
        raise BootstrapError(reason)
    installed, trees = _installed(), {} if version == INSTALLED_VERSION else {version: _tree(version)}
    for folder in (installed, *trees.values()):
        if not folder.is_dir():
            raise BootstrapError(f"vLLM {version} is not prepared ({folder} is absent); next step: {ADVICE}")
    home = cache_folder("vllm", "home")
    return Upstream(
        version=version,
        python=installed / "bin" / "python",
        environment={
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "1",
            "PYTHONDONTWRITEBYTECODE": "",  # kept, whatever the machine says: to compile is half of an import
            "PYTHONPATH": str(trees.get(version, "")),
            "VLLM_CACHE_ROOT": str(home),
            "VLLM_CONFIG_ROOT": str(home),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_TARGET_DEVICE": "cpu",  # a tree's own distribution metadata would choose CUDA
        },
    )


def prepare(*, timeline: Timeline) -> None:
    """Makes what is not there yet; needs the project's own environment. What an interrupted call finished is kept."""
    if reason := reason_unsupported():
        timeline.say(f"contract tests with vLLM's own code are skipped: {reason}")
        return
    try:
        _prepare(timeline=timeline)
    except BootstrapError as error:
        raise BootstrapError(
            f"vLLM's packages for the contract tests could not be installed: {error}\n"
            "Next step: call again where the package index can be reached; or do without these tests:\n"
            '    .venv/bin/python -m pytest -m "not contract"'
        ) from error


def _prepare(*, timeline: Timeline) -> None:
    if not _installed().is_dir():
        num_packages = LOCK.read_text(encoding="utf-8").count("==")
        with timeline.step(f"vLLM {INSTALLED_VERSION}", f"for a CPU, {num_packages} locked packages; 3 GB to fetch, once"):
            make_once(_installed(), make=partial(_install, timeline=timeline), kept="environment-*", say=timeline.say)
    for version, requirement in locked_wheels().items():
        if not _tree(version).is_dir():
            with timeline.step(f"vLLM {version}", f"the Python of {requirement.split(maxsplit=1)[0]}"):
                unpack = partial(make_tree, requirement=requirement)
                make_once(_tree(version), make=unpack, kept=f"{version}-*", say=timeline.say)


def _install(folder: Path, *, timeline: Timeline) -> None:
    """Programs are run by `python -m`: the scripts in `bin` name the folder in which they were made."""
    run([sys.executable, "-m", "venv", folder])
    python = folder / "bin" / "python"
    install_with_uv(PYTHON.parent / "uv", python, [LOCK], is_cached=False, timeline=timeline)
    run([python, "-c", REMOVE_UNOPENED])


def _installed() -> Path:
    interpreter = f"{Path(sys.executable).resolve()} {sys.version}"
    return cache_folder("vllm") / f"environment-{_key(interpreter + LOCK.read_text(encoding='utf-8'))}"


def _tree(version: str) -> Path:
    return cache_folder("vllm") / f"{version}-{_key(locked_wheels()[version])}"


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]
