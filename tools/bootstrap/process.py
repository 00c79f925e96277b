"""Runs a program quietly: its output is shown only when it fails."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.bootstrap.failure import BootstrapError

LAST_LINES = 30


def run(
    command: Sequence[str | Path], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None, stdin: str = ""
) -> str:
    """Standard output of `command`. A program that is absent or fails is a BootstrapError with its last lines."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise BootstrapError(f"{words[0]}: no such program; install it, or run make as root on Debian, which does that") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:]
        raise BootstrapError("\n".join([f"exit code {done.returncode}: {' '.join(words)}", *(f"    {line}" for line in lines)]))
    return done.stdout
