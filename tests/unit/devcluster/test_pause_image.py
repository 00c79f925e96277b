import gzip
import hashlib
import io
import json
import tarfile
from typing import Any

from tools.devcluster.pause_image import oci_archive


def read_archive(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: extracted.read() for entry in tar if (extracted := tar.extractfile(entry))}


def build() -> bytes:
    return oci_archive(
        files={"pause": b"\x7fELF"}, entrypoint=["/pause"], reference="localhost/pause:local", architecture="amd64"
    )


def test_every_descriptor_names_a_blob_by_its_digest_and_size() -> None:
    files = read_archive(build())
    index: dict[str, Any] = json.loads(files["index.json"])

    def blob(descriptor: dict[str, Any]) -> bytes:
        content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        assert len(content) == descriptor["size"]
        assert hashlib.sha256(content).hexdigest() == descriptor["digest"].removeprefix("sha256:")
        return content

    manifest = json.loads(blob(index["manifests"][0]))
    configuration = json.loads(blob(manifest["config"]))
    layer = gzip.decompress(blob(manifest["layers"][0]))
    assert configuration["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    assert configuration["config"]["Entrypoint"] == ["/pause"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(entry.name, entry.mode) for entry in tar] == [("pause", 0o755)]


def test_the_image_has_the_name_that_pods_ask_for() -> None:
    index = json.loads(read_archive(build())["index.json"])
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "localhost/pause:local"
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == "local"


def test_the_same_input_gives_the_same_bytes() -> None:
    assert build() == build()
