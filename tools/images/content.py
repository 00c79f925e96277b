"""What goes into an image: its key (a hash over everything) and the build context with exactly that."""

import hashlib
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT_FILES = ("pyproject.toml", "README.md", "LICENSE")
PACKAGES = ("operator/hisparse_operator", "runtime/hisparse_runtime")
KEY_DIGITS = 12


def image_key(name: str, *, lock: str, base_key: str) -> str:
    """Hash of the base's key, the Dockerfile, the locks, the project's sources and the machine's architecture."""
    digest = hashlib.sha256(f"{base_key} {os.uname().machine}\n".encode())
    for path in [REPOSITORY / "images" / f"{name}.Dockerfile", *_files(lock)]:
        content = path.read_bytes()
        # Name and length are hashed too, or text could move from one file to the next unseen.
        digest.update(f"{path.relative_to(REPOSITORY)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:KEY_DIGITS]


@contextmanager
def write_context(name: str, *, lock: str, wheels: Path, folder: Path) -> Iterator[Path]:
    """A temporary build context below `folder` (the same file system as the wheels, so that they can be linked)."""
    with tempfile.TemporaryDirectory(prefix=f"context-{name}-", dir=folder) as temporary:
        context = Path(temporary)
        for path in _files(lock):
            target = context / path.relative_to(REPOSITORY)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        shutil.copytree(wheels, context / "wheels", copy_function=os.link)
        yield context


def project_version() -> str:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def _files(lock: str) -> list[Path]:
    files = [REPOSITORY / name for name in PROJECT_FILES]
    files += [REPOSITORY / "requirements" / f"{lock}.txt", REPOSITORY / "requirements" / "build.txt"]
    for package in PACKAGES:
        files += (path for path in (REPOSITORY / package).rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return sorted(files)
