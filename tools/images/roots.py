"""The root file system below every image: Debian's essential packages and its Python, made by mmdebstrap."""

import hashlib
import os
from pathlib import Path

from tools.bootstrap import Timeline
from tools.bootstrap.process import run

SUITE = "bookworm"
# libstdc++6: compiled wheels (NumPy) link it. libnuma1: so does vLLM's code for a CPU, which tests mount; without it the engine
# ends while it starts and gives no reason. python3-venv: the images' first stage makes environments as in python:3.11-slim.
INCLUDED = ("ca-certificates", "libnuma1", "libstdc++6", "python3", "python3-venv")
EXCLUDED_PATHS = ("doc", "i18n", "info", "lintian", "locale", "man")
EPOCH_SECONDS = 1764000000  # the mtime of what mmdebstrap makes; any fixed time gives the same tar for the same packages
# Bytecode of Debian's Python stays, its test-only and graphical modules are not in these packages anyway.
CLEAN_UP = 'rm -rf "$1"/var/lib/apt "$1"/var/log/* "$1"/var/cache/*'
BASE_KEY = hashlib.sha256(repr((SUITE, INCLUDED, EXCLUDED_PATHS, EPOCH_SECONDS, CLEAN_UP)).encode()).hexdigest()[:12]


def make_rootfs(folder: Path, *, timeline: Timeline) -> Path:
    """Tar of the root file system; about 40 s when `folder` does not hold it yet. `make clean` makes the next one fresh."""
    rootfs = folder / f"{BASE_KEY}-{os.uname().machine}.tar"
    if rootfs.exists():
        return rootfs
    # mmdebstrap chooses the format by the name's ending, so the unfinished file must end in .tar as well.
    partial = folder / f"partial-{rootfs.name}"
    partial.unlink(missing_ok=True)
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in EXCLUDED_PATHS]
    options.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
    with timeline.step("root file system", f"Debian {SUITE} by mmdebstrap"):
        run(
            [
                "mmdebstrap",
                "--variant=essential",
                f"--include={','.join(INCLUDED)}",
                *options,
                f"--customize-hook={CLEAN_UP}",
                SUITE,
                partial,
                *_sources(),
            ],
            environment={"SOURCE_DATE_EPOCH": str(EPOCH_SECONDS)},
        )
        partial.rename(rootfs)
    return rootfs


def _sources() -> list[Path]:
    """The machine's own sources with its mirrors and keys, when it is the same Debian; otherwise mmdebstrap's default."""
    file = Path("/etc/apt/sources.list.d/debian.sources")
    return [file] if file.exists() and SUITE in file.read_text(encoding="utf-8") else []
