"""What goes into an image: its key (a hash over everything) and the build context with exactly that."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.images.recipes import RUNTIME, Recipe

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT_FILES = ("pyproject.toml", "README.md", "LICENSE")
PACKAGES = ("operator/hisparse_operator", "runtime/hisparse_runtime")
KEY_DIGITS = 12


def image_key(recipe: Recipe, *, base_key: str) -> str:
    """Hash of the base's key, the Dockerfile, the labels, the locks, the project's sources and the machine's architecture."""
    digest = hashlib.sha256(f"{base_key} {os.uname().machine} {sorted(recipe.labels.items())}\n".encode())
    for path in [dockerfile(recipe), *_files(recipe.lock)]:
        content = path.read_bytes()
        # Name and length are hashed too, or text could move from one file to the next unseen.
        digest.update(f"{path.relative_to(REPOSITORY)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:KEY_DIGITS]


@contextmanager
def write_context(recipe: Recipe, *, wheels: Path, folder: Path) -> Iterator[Path]:
    """A temporary build context below `folder` (the same file system as the wheels, so that they can be linked)."""
    with tempfile.TemporaryDirectory(prefix=f"context-{recipe.dockerfile}-", dir=folder) as temporary:
        context = Path(temporary)
        for path in _files(recipe.lock):
            target = context / path.relative_to(REPOSITORY)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        shutil.copytree(wheels, context / "wheels", copy_function=os.link)
        yield context


def dockerfile(recipe: Recipe) -> Path:
    return REPOSITORY / "images" / f"{recipe.dockerfile}.Dockerfile"


def project_version() -> str:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def revision() -> str:
    """Commit of the checkout, with `-dirty` when files differ from it; `unknown` outside of git."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def default_vllm_version() -> str:
    """Of the runtime image, unless told otherwise: the Dockerfile says it once for every way of building."""
    found = re.search(r"^ARG VLLM_VERSION=(\S+)$", dockerfile(RUNTIME).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, "images/runtime.Dockerfile has the version in a line of its own"
    return found[1]


def _files(lock: str) -> list[Path]:
    files = {REPOSITORY / name for name in PROJECT_FILES}
    files |= {REPOSITORY / "requirements" / f"{lock}.txt", REPOSITORY / "requirements" / "build.txt"}
    for package in PACKAGES:
        files |= {path for path in (REPOSITORY / package).rglob("*") if path.is_file() and path.parent.name != "__pycache__"}
    return sorted(files)
