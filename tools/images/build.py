"""Images as OCI archives: nothing is built twice, a changed source gives a new tag and so a rollout."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.bootstrap import BootstrapError, Timeline, cache_folder
from tools.images.content import REPOSITORY, dockerfile, image_key, project_version, revision, write_context
from tools.images.recipes import BUILDAH_IMAGES
from tools.images.roots import BASE_KEY, make_rootfs
from tools.images.sbom import write_sbom
from tools.images.store import Store
from tools.images.wheels import fetch_wheels

KEPT_ARCHIVES = 3  # of each image: the current one, and those that a running cluster may still be asked to load


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageArchive:
    """An image as a file, ready for `tools.devcluster load` (or `ctr -n k8s.io images import`)."""

    reference: str  # localhost/hisparse-operator:0123456789ab
    archive: Path
    sbom: Path  # CycloneDX JSON


def build_images(timeline: Timeline | None = None, *, names: Sequence[str] = ("operator", "embedded")) -> dict[str, ImageArchive]:
    """Those of BUILDAH_IMAGES that are named, built where the cache does not hold them yet; raises BootstrapError."""
    timeline = timeline or Timeline()
    images = {name: _expected(name) for name in names}
    missing = [name for name, image in images.items() if not (image.archive.exists() and image.sbom.exists())]
    if missing:
        _check_machine()
        with _build_lock(timeline):
            for name in missing:
                if not (images[name].archive.exists() and images[name].sbom.exists()):  # another build may have been first
                    _build(name, image=images[name], timeline=timeline)
        _prune(images)
    return images


def _expected(name: str) -> ImageArchive:
    key = image_key(BUILDAH_IMAGES[name], base_key=BASE_KEY)
    archives = cache_folder("images", "archives")
    return ImageArchive(
        reference=f"localhost/hisparse-{name}:{key}",
        archive=archives / f"hisparse-{name}-{key}.tar",
        sbom=archives / f"hisparse-{name}-{key}.cdx.json",
    )


def _build(name: str, *, image: ImageArchive, timeline: Timeline) -> None:
    recipe = BUILDAH_IMAGES[name]
    store = Store(cache_folder("images", "store"))
    base_reference = f"localhost/hisparse-base:{BASE_KEY}"
    store.shrink()
    try:
        rootfs = make_rootfs(cache_folder("images", "rootfs"), timeline=timeline)
        if not store.has(base_reference):
            with timeline.step("base image"):
                store.build_base(rootfs=rootfs, dockerfile=REPOSITORY / "images" / "rootfs.Dockerfile", reference=base_reference)
        wheels = fetch_wheels(recipe.lock, folder=cache_folder("images", "wheels"), timeline=timeline)
        with (
            timeline.step(f"image {name}", image.reference),
            write_context(recipe, wheels=wheels, folder=store.folder) as context,
        ):
            arguments = {
                "BASE": base_reference,
                "BUILD_BASE": base_reference,  # of runtime.Dockerfile
                "PIP_ARGS": "--no-index --find-links=/src/locked",
                "VERSION": project_version(),
                "REVISION": revision(),
            }
            store.build(
                context=context,
                dockerfile=dockerfile(recipe),
                reference=image.reference,
                arguments=arguments,
                labels=recipe.labels,
            )
        with timeline.step(f"archive and SBOM of {name}"):
            with store.mounted(image.reference) as root:
                write_sbom(root, name=f"hisparse-{name}", version=project_version(), output=image.sbom)
            store.export(image.reference, archive=image.archive)
    finally:
        store.release()


def _check_machine() -> None:
    if os.uname().sysname != "Linux" or os.geteuid() != 0:
        raise BootstrapError(
            "images are built on Linux as root: run `sudo make images`, or `make images ENGINE=docker` where Docker is installed"
        )


@contextmanager
def _build_lock(timeline: Timeline) -> Iterator[None]:
    """One build at a time on a machine: two would race for the same store."""
    with (cache_folder("images") / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            timeline.say("images: another build is running; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prune(images: dict[str, ImageArchive]) -> None:
    """Drops all but the newest archives of each image, and what half-finished builds left."""
    archives = cache_folder("images", "archives")
    for partial in archives.glob("*.partial"):
        partial.unlink()
    for name, image in images.items():
        others = sorted(archives.glob(f"hisparse-{name}-*.tar"), key=lambda path: -path.stat().st_mtime)
        for old in [path for path in others if path != image.archive][KEPT_ARCHIVES - 1 :]:
            old.unlink()
            old.with_suffix(".cdx.json").unlink(missing_ok=True)
