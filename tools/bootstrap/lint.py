"""`python -m tools.bootstrap.lint`: every check that runs no code of ours, all of them even when one fails."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.bootstrap.environment import REPOSITORY
from tools.bootstrap.helm import find_helm
from tools.bootstrap.timeline import Timeline

CHART = Path("helm") / "hisparse-operator"
CHECKS: dict[str, tuple[str, ...]] = {
    "ruff check": ("ruff", "check", "--quiet"),
    "ruff format": ("ruff", "format", "--check", "--quiet"),
    "mypy": ("mypy", "--no-error-summary"),
    "lint-imports": ("lint-imports",),
    "deptry": ("deptry", "operator", "runtime"),
    "vulture": ("vulture",),
}


def main() -> int:
    timeline = Timeline()
    failed = [name for name, command in CHECKS.items() if not _passes(name, command, timeline=timeline)]
    helm = find_helm()
    if helm is None:
        timeline.say("helm lint: skipped, no helm on PATH; `make test` and `make demo` build one on Linux")
    elif not _passes("helm lint", (str(helm), "lint", "--strict", "--quiet", str(CHART)), timeline=timeline):
        failed.append("helm lint")
    if failed:
        print(f"error: {', '.join(failed)} found something", file=sys.stderr)
        return 1
    timeline.say(f"lint: {len(CHECKS) + (helm is not None)} checks passed")
    return 0


def _passes(name: str, command: Sequence[str], *, timeline: Timeline) -> bool:
    """Runs the check with the environment's own programs; what it says is shown when it fails."""
    with timeline.step(name):
        programs = Path(sys.executable).parent
        environment = {**os.environ, "PATH": f"{programs}:{os.environ.get('PATH', '')}"}
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return not done.returncode


if __name__ == "__main__":
    sys.exit(main())
