"""Wheels of a lock file for the images' Python, fetched on the machine, so that the build itself needs no network."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

from tools.bootstrap import Timeline
from tools.bootstrap.process import run
from tools.images.content import REPOSITORY

PYTHON_VERSION = "3.11"  # of Debian bookworm, whatever runs this here
NEWEST_GLIBC_MINOR = 36  # bookworm's; a wheel that wants a newer one would not load
OLDEST_GLIBC_MINOR = 5  # where manylinux begins


def fetch_wheels(lock: str, *, folder: Path, timeline: Timeline) -> Path:
    """Folder with the wheels of `requirements/{lock}.txt` and of the build backend, checked against their hashes."""
    locks = [REPOSITORY / "requirements" / f"{name}.txt" for name in dict.fromkeys((lock, "build"))]
    platforms = _platforms()
    key = hashlib.sha256(b"\n".join([repr(platforms).encode(), *(path.read_bytes() for path in locks)])).hexdigest()[:12]
    wheels = folder / f"{lock}-{key}"
    if wheels.exists():
        return wheels
    partial = folder / f"{lock}-{key}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    with timeline.step(f"wheels of {lock}"):
        requirements = [word for path in locks for word in ("-r", path)]
        target = [
            "--python-version",
            PYTHON_VERSION,
            "--implementation",
            "cp",
            *(word for name in platforms for word in ("--platform", name)),
        ]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "download",
            "-q",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
        ]
        run([*pip, *target, *requirements, "-d", partial])
        for old in folder.glob(f"{lock}-*"):
            if old != partial:
                shutil.rmtree(old)
        partial.rename(wheels)
    return wheels


def _platforms() -> list[str]:
    machine = os.uname().machine
    return [
        *(f"manylinux_2_{minor}_{machine}" for minor in range(NEWEST_GLIBC_MINOR, OLDEST_GLIBC_MINOR - 1, -1)),
        f"manylinux2014_{machine}",
    ]
