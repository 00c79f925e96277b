"""`python -m tools.bootstrap.lock`: resolves pyproject.toml anew and writes requirements/*.txt with hashes."""

import argparse
import sys
import tempfile
from pathlib import Path

from tools.bootstrap.environment import REPOSITORY
from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.process import run
from tools.bootstrap.timeline import Timeline

REQUIREMENTS = REPOSITORY / "requirements"
PYTHON_VERSION = "3.11"  # the oldest supported one, and that of the images
EXTRAS = ("operator", "engine")
# What is needed beside pyproject.toml: the build backend (with what it asks for editable installs), and the resolver itself.
OTHERS = {"build": "hatchling>=1.27\neditables>=0.5\n", "uv": "uv>=0.9\n"}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make lock", description="Writes requirements/*.txt; locked versions stay where they still fit."
    )
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    options = ["--upgrade"] if parser.parse_args().upgrade else []
    timeline = Timeline()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            uv = _install_uv(Path(temporary), timeline=timeline)
            # dev first: it holds every extra, and the others take their versions from it.
            _compile(uv, "dev", arguments=["--extra", "dev", "pyproject.toml", *options], timeline=timeline)
            constraint = ["--constraint", "requirements/dev.txt"]
            for extra in EXTRAS:
                _compile(uv, extra, arguments=["--extra", extra, "pyproject.toml", *constraint], timeline=timeline)
            for name, wanted in OTHERS.items():
                _compile(uv, name, arguments=["-", *constraint, *options], wanted=wanted, timeline=timeline)
    except BootstrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _install_uv(folder: Path, *, timeline: Timeline) -> Path:
    """The locked uv, for this call only: nothing else needs it."""
    with timeline.step("uv"):
        run([sys.executable, "-m", "venv", folder / "uv"])
        pip = [folder / "uv" / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        run([*pip, "--require-hashes", "-r", REQUIREMENTS / "uv.txt"])
    return folder / "uv" / "bin" / "uv"


def _compile(uv: Path, name: str, *, arguments: list[str], timeline: Timeline, wanted: str = "") -> None:
    with timeline.step(f"requirements/{name}.txt"):
        form = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--python-version", PYTHON_VERSION]
        run(
            [uv, "pip", "compile", "--quiet", *form, *arguments, "--output-file", f"requirements/{name}.txt"],
            cwd=REPOSITORY,
            stdin=wanted,
        )


if __name__ == "__main__":
    sys.exit(main())
