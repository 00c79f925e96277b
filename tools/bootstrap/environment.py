"""The virtual environment in `.venv`: every package from the hash-locked files, the project itself in place."""

import hashlib
import importlib.util
import sys
import tomllib
from pathlib import Path

from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.locked_install import PIP, install_locked
from tools.bootstrap.process import run
from tools.bootstrap.timeline import Timeline

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = REPOSITORY / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
LOCKED = ("build", "dev")  # the build backend, so that the project is installed without a look at the index; everything else


def make_environment(*, timeline: Timeline) -> None:
    """Made anew when a lock or the interpreter changed; only the project is installed again when its metadata changed."""
    locked_stamp, project_stamp = ENVIRONMENT / ".locked", ENVIRONMENT / ".project"
    locked, project = _locked_key(), _project_key()
    if not PYTHON.exists() or _read(locked_stamp) != locked:
        if importlib.util.find_spec("ensurepip") is None:
            raise BootstrapError(f"{sys.executable} cannot make virtual environments: apt-get install python3-venv")
        with timeline.step(
            "virtual environment", f"{ENVIRONMENT.name}, Python {sys.version.split()[0]}, {_num_locked()} locked packages"
        ):
            run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT])
            install_locked(PYTHON, [_lock(name) for name in LOCKED], uv_file=_lock("uv"), timeline=timeline)
            locked_stamp.write_text(locked, encoding="utf-8")
    if _read(project_stamp) != project:
        with timeline.step("project", "installed in place"):
            run([PYTHON, *PIP, "--no-build-isolation", "--editable", REPOSITORY])
            project_stamp.write_text(project, encoding="utf-8")


def _locked_key() -> str:
    digest = hashlib.sha256(f"{sys.executable} {sys.version}".encode())
    for name in (*LOCKED, "uv"):
        digest.update(_lock(name).read_bytes())
    return digest.hexdigest()


def _project_key() -> str:
    """Only what the installed metadata is made of: a changed lint rule installs nothing."""
    document = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    relevant = {"project": document["project"], "build-system": document["build-system"], "hatch": document["tool"]["hatch"]}
    return hashlib.sha256(repr((str(REPOSITORY), relevant)).encode()).hexdigest()


def _num_locked() -> int:
    return sum(_lock(name).read_text(encoding="utf-8").count("==") for name in LOCKED)


def _lock(name: str) -> Path:
    return REPOSITORY / "requirements" / f"{name}.txt"


def _read(stamp: Path) -> str:
    return stamp.read_text(encoding="utf-8") if stamp.exists() else ""
