"""`python -m tools.bootstrap.lock`: resolves pyproject.toml anew and writes requirements/*.txt with hashes."""

import argparse
import os
import sys
from pathlib import Path

from tools.bootstrap.environment import ENVIRONMENT, REPOSITORY
from tools.bootstrap.failure import BootstrapError
from tools.bootstrap.locked_install import uv_environment
from tools.bootstrap.process import run
from tools.bootstrap.timeline import Timeline

UV = ENVIRONMENT / "bin" / "uv"
PYTHON_VERSION = "3.11"  # the oldest supported one, and that of the images
EXTRAS = ("operator", "engine")
# Beside pyproject.toml: the build backend with what it asks for editable installs, and the installer itself.
OTHERS = {"build": "hatchling>=1.27\neditables>=0.5\n", "uv": "uv>=0.9\n"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make lock", description="Writes requirements/*.txt; versions that still fit stay.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    options = ["--upgrade"] if parser.parse_args().upgrade else []
    timeline = Timeline()
    try:
        # dev first: it holds every extra, and the others take their versions from it.
        _compile("dev", arguments=["--extra", "dev", "pyproject.toml", *options], timeline=timeline)
        constraint = ["--constraint", "requirements/dev.txt"]
        for extra in EXTRAS:
            _compile(extra, arguments=["--extra", extra, "pyproject.toml", *constraint], timeline=timeline)
        for name, wanted in OTHERS.items():
            _compile(name, arguments=["-", *constraint, *options], wanted=wanted, timeline=timeline)
    except BootstrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _compile(name: str, *, arguments: list[str], timeline: Timeline, wanted: str = "") -> None:
    form = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--python-version", PYTHON_VERSION]
    command: list[str | Path] = [UV, "pip", "compile", "--quiet", *form, *arguments]
    with timeline.step(f"requirements/{name}.txt"):
        environment = uv_environment(run([sys.executable, "-m", "pip", "config", "list"]), present=os.environ)
        run([*command, "--output-file", f"requirements/{name}.txt"], cwd=REPOSITORY, environment=environment, stdin=wanted)


if __name__ == "__main__":
    sys.exit(main())
