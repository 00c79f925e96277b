"""The pause image as an OCI archive, written here: no builder and no registry is needed for a single file."""

import gzip
import hashlib
import io
import json
import platform
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.bootstrap.cache import cache_folder
from tools.devcluster import golang
from tools.devcluster.binaries import build_lock, source_key
from tools.devcluster.golang import Report
from tools.devcluster.layout import PAUSE_IMAGE

_MODULE = Path(__file__).resolve().parent / "pause"
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pause_archive(*, report: Report) -> Path:
    """Path of the archive; built when the cache does not have it."""
    files = {name: (_MODULE / name).read_bytes() for name in ("main.go", "go.mod")}
    folder = cache_folder("binaries")
    target = folder / f"pause-{source_key(files, salt=platform.machine() + PAUSE_IMAGE)}.tar"
    if target.exists():
        return target
    with build_lock(folder, report=report):
        if not target.exists():
            with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as temporary:
                program, archive = Path(temporary) / "pause", Path(temporary) / "pause.tar"
                golang.build(golang.find_go(report=report), module=_MODULE, output=program, what="pause image", report=report)
                archive.write_bytes(
                    oci_archive(
                        files={"pause": program.read_bytes()},
                        entrypoint=["/pause"],
                        reference=PAUSE_IMAGE,
                        architecture=architecture(),
                    )
                )
                archive.rename(target)
    return target


def architecture() -> str:
    """This machine's architecture as images name it."""
    return _GO_ARCHITECTURES.get(platform.machine(), platform.machine())


def oci_archive(
    *, files: Mapping[str, bytes], entrypoint: list[str], reference: str, architecture: str, user: str = "65535:65535"
) -> bytes:
    """An archive of one image with one layer of executable files; the same input gives the same bytes."""
    layer = _tar({name: (content, 0o755) for name, content in files.items()})
    packed = gzip.compress(layer, mtime=0)
    configuration = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": entrypoint, "User": user, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("application/vnd.oci.image.config.v1+json", configuration),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", packed)],
        }
    )
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {
                **_descriptor("application/vnd.oci.image.manifest.v1+json", manifest),
                "platform": {"architecture": architecture, "os": "linux"},
                # containerd takes the image's full name from here
                "annotations": {
                    "io.containerd.image.name": reference,
                    "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
                },
            }
        ],
    }
    blobs = {f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": (blob, 0o644) for blob in (packed, configuration, manifest)}
    return _tar({"oci-layout": (_json({"imageLayoutVersion": "1.0.0"}), 0o644), "index.json": (_json(index), 0o644), **blobs})


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode  # time, owner and group stay 0
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _descriptor(media_type: str, blob: bytes) -> dict[str, str | int]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
