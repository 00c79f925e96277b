"""The bill of materials names what an image's own package databases name, and nothing else."""

import json
from pathlib import Path

import pytest

from tools.images.sbom import is_read, write_sbom

DPKG = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0
"""


def distribution(
    root: Path, name: str, version: str, *lines: str, packages: str = "opt/app/lib/python3.11/site-packages"
) -> None:
    folder = root / packages / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines]) + "\n")


def test_python_and_debian_packages_are_listed_with_their_licences(tmp_path: Path) -> None:
    root = tmp_path / "root"
    distribution(root, "Spdx_Named", "1.0", "License-Expression: MIT")
    distribution(root, "field.named", "2.0", "License: BSD", "        and the rest of the text")
    distribution(root, "classified", "3.0+cpu", "Classifier: License :: OSI Approved :: Apache Software License")
    distribution(root, "unlicensed", "4.0")
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(DPKG)
    output = tmp_path / "bom.json"
    write_sbom(root, name="image", version="0.1.0", output=output)
    document = json.loads(output.read_text())
    assert (document["bomFormat"], document["specVersion"], document["metadata"]["component"]["name"]) == (
        "CycloneDX",
        "1.6",
        "image",
    )
    assert {item["purl"]: item.get("licenses") for item in document["components"]} == {
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64": None,
        "pkg:pypi/classified@3.0%2Bcpu": [{"license": {"name": "Apache Software License"}}],
        "pkg:pypi/field-named@2.0": [{"license": {"name": "BSD"}}],
        "pkg:pypi/spdx-named@1.0": [{"expression": "MIT"}],
        "pkg:pypi/unlicensed@4.0": None,
    }


def test_same_image_gives_the_same_bytes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    distribution(root, "b", "1")
    distribution(root, "a", "1")
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_sbom(root, name="image", version="1", output=first)
    write_sbom(root, name="image", version="1", output=second)
    assert first.read_bytes() == second.read_bytes()
    assert [item["name"] for item in json.loads(first.read_text())["components"]] == ["a", "b"]


@pytest.mark.parametrize(
    "packages",
    [
        "opt/app/lib/python3.11/site-packages",
        "usr/lib/python3/dist-packages",  # Debian's own packages
        "usr/local/lib/python3.11/site-packages",  # python:3.11-slim
        "usr/local/lib/python3.12/dist-packages",  # vLLM's image
    ],
)
def test_packages_are_found_wherever_an_image_has_its_python(tmp_path: Path, packages: str) -> None:
    root, output = tmp_path / "root", tmp_path / "bom.json"
    distribution(root, "vllm", "0.33.0", packages=packages)
    write_sbom(root, name="image", version="1", output=output)
    assert [item["purl"] for item in json.loads(output.read_text())["components"]] == ["pkg:pypi/vllm@0.33.0"]
    assert [path for path in root.rglob("*") if is_read(str(path.relative_to(root)))]
