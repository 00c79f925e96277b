"""buildah with a store of its own in the cache: it meets no other image of the machine and leaves no mount behind."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.bootstrap.process import run

EPOCH_SECONDS = 1764000000  # a fixed time in the image's metadata: the same content gives the same digest
LARGEST_STORE_BYTES = 3 << 30


class Store:
    """`folder` holds layers, the runtime state and the temporary build contexts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A policy file of our own: the package that brings /etc/containers/policy.json is only recommended on some releases.
        self._policy = folder / "policy.json"
        self._policy.write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}), encoding="utf-8")
        driver = "vfs" if _file_system(folder) == "overlay" else "overlay"  # overlay cannot lie on top of overlay
        self._buildah: list[str | Path] = ["buildah", "--root", folder / "root", "--runroot", folder / "run"]
        self._buildah += ["--storage-driver", driver]

    def has(self, reference: str) -> bool:
        names = run([*self._buildah, "images", "--format", "{{.Name}}:{{.Tag}}"]).split()
        return reference in names

    def build_base(self, *, rootfs: Path, dockerfile: Path, reference: str) -> None:
        with tempfile.TemporaryDirectory(prefix="context-base-", dir=self.folder) as context:
            os.link(rootfs, Path(context) / "rootfs.tar")
            self.build(context=Path(context), dockerfile=dockerfile, reference=reference, arguments={}, labels={})

    def build(
        self, *, context: Path, dockerfile: Path, reference: str, arguments: Mapping[str, str], labels: Mapping[str, str]
    ) -> None:
        """Chroot isolation needs the fewest kernel features: no container runtime, no network namespace."""
        words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        words += [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
        options: list[str | Path] = ["--layers", "--isolation", "chroot", "--timestamp", str(EPOCH_SECONDS)]
        options += ["--signature-policy", self._policy]
        run([*self._buildah, "bud", "-q", *options, *words, "-f", dockerfile, "-t", reference, context])

    def export(self, reference: str, *, archive: Path) -> None:
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)  # buildah would add to it
        run([*self._buildah, "push", "-q", "--signature-policy", self._policy, reference, f"oci-archive:{partial}:{reference}"])
        partial.rename(archive)

    @contextmanager
    def mounted(self, reference: str) -> Iterator[Path]:
        """The image's file system, to read."""
        container = run([*self._buildah, "from", "--pull-never", "--signature-policy", self._policy, reference]).strip()
        try:
            yield Path(run([*self._buildah, "mount", container]).strip())
        finally:
            run([*self._buildah, "rm", container])

    def release(self) -> None:
        """Ends every working container, a failed build's too, and with them all mounts."""
        run([*self._buildah, "rm", "--all"])

    def shrink(self) -> None:
        """Starts over when old layers have piled up: cheaper than to find out which of them a later build would hit."""
        if _used_bytes(self.folder) > LARGEST_STORE_BYTES:
            run([*self._buildah, "rmi", "--all", "--force"])


def _file_system(folder: Path) -> str:
    return run(["stat", "--file-system", "--format=%T", folder]).strip().removesuffix("fs")


def _used_bytes(folder: Path) -> int:
    return int(run(["du", "--summarize", "--bytes", folder]).split()[0])
