"""Software bill of materials (CycloneDX 1.6 JSON) of an image, read from its own package databases."""

import json
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

# Environments of ours; the system's Python as pip and Debian fill it; the same where Python is not Debian's.
PYTHON_FOLDERS = (
    "opt/*/lib/python3*/site-packages",
    "usr/local/lib/python3*/dist-packages",
    "usr/lib/python3*/dist-packages",
    "usr/local/lib/python3*/site-packages",
)
DPKG_STATUS = "var/lib/dpkg/status"
LONGEST_LICENCE = 80  # some packages put the whole text into the License field; its first line names it


def write_sbom(root: Path, *, name: str, version: str, output: Path) -> None:
    """`root` is the image's file system. The same content gives the same bytes: no serial number, no time."""
    components = [*_python_components(root), *_debian_components(root)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "bom-ref": name, "name": name, "version": version}},
        "components": sorted(components, key=lambda component: component["purl"]),
    }
    partial = output.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    partial.rename(output)


def is_read(path: str) -> bool:
    """Whether `write_sbom` looks at this file of an image; `path` is relative to its root."""
    return path == DPKG_STATUS or path.endswith((".dist-info/METADATA", ".egg-info/PKG-INFO", ".egg-info"))


def _python_components(root: Path) -> list[dict[str, Any]]:
    folders = [str(folder) for pattern in PYTHON_FOLDERS for folder in root.glob(pattern)]
    found = []
    for distribution in distributions(path=folders):
        metadata = distribution.metadata
        name = re.sub(r"[-_.]+", "-", metadata["Name"]).lower()  # the form that purl asks for
        component = _component(name=name, version=distribution.version, purl=f"pkg:pypi/{name}@{quote(distribution.version)}")
        licence = _licence(metadata.json)
        if licence is not None:
            component["licenses"] = [licence]
        found.append(component)
    return found


def _licence(metadata: dict[str, Any]) -> dict[str, Any] | None:
    """The SPDX expression of newer packages, else the License field, else the classifiers."""
    if expression := metadata.get("license_expression"):
        return {"expression": expression}
    name = str(metadata.get("license", "")).strip().split("\n")[0][:LONGEST_LICENCE]
    classifiers = [text.split(" :: ")[-1] for text in metadata.get("classifier", []) if text.startswith("License :: ")]
    name = name or ", ".join(classifiers)
    return {"license": {"name": name}} if name else None


def _debian_components(root: Path) -> list[dict[str, Any]]:
    """Installed packages by dpkg's status file: paragraphs of `Field: value` lines."""
    status = root / DPKG_STATUS
    if not status.exists():
        return []
    found = []
    for paragraph in status.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]*): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={fields['Architecture']}"
            found.append(_component(name=name, version=version, purl=purl))
    return found


def _component(*, name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
