"""What Docker or Podman is asked, by a program in its place: the images of a release, vLLM's base checked, a bill of each."""

import json
from pathlib import Path

import pytest
import yaml

from tools.bootstrap import BootstrapError, Timeline
from tools.images.content import default_vllm_version
from tools.images.docker import build_with_docker

ROOT = Path(__file__).resolve().parents[3]
# Builds nothing, exports a root file system with one package of Python, and answers vLLM's version.
STAND_IN = """#!/bin/sh
echo "$@" >> {folder}/calls
case $1 in
    create) echo container-of-$2;;
    export) tar -C {folder}/root -c .;;
    run) echo {vllm}+cu130;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    metadata = tmp_path / "root/usr/local/lib/python3.12/dist-packages/pydantic-2.14.4.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.4\nName: pydantic\nVersion: 2.14.4\n")
    (metadata.parent / "RECORD").write_text("of no interest")
    return tmp_path


def stand_in(folder: Path, *, vllm: str) -> str:
    program = folder / "docker"
    program.write_text(STAND_IN.format(folder=folder, vllm=vllm))
    program.chmod(0o755)
    return str(program)


def test_runtime_image_is_built_on_the_asked_vllm_and_every_image_has_a_bill(folder: Path) -> None:
    boms = build_with_docker(stand_in(folder, vllm="0.32.0"), vllm_version="0.32.0", timeline=Timeline())
    assert [reference.partition(":")[0] for reference in boms] == ["hisparse-operator", "hisparse-embedded", "hisparse-runtime"]
    runtime = list(boms)[-1]
    assert runtime.endswith("-vllm0.32")
    for bom in boms.values():
        components = json.loads(bom.read_text())["components"]
        assert [component["purl"] for component in components] == ["pkg:pypi/pydantic@2.14.4"]
    calls = (folder / "calls").read_text().splitlines()
    builds = [call for call in calls if call.startswith("build ")]
    assert ["VLLM_VERSION=0.32.0" in call for call in builds] == [False, False, True]
    assert [call for call in calls if call.startswith("rm ")] == [f"rm container-of-{reference}" for reference in boms]


def test_default_vllm_is_the_dockerfiles_and_every_name_is_the_charts(folder: Path) -> None:
    boms = build_with_docker(stand_in(folder, vllm=default_vllm_version()), timeline=Timeline())
    values = yaml.safe_load((ROOT / "helm/hisparse-operator/values.yaml").read_text())
    assert values["image"]["repository"] == "hisparse-operator"
    assert values["engine"]["embeddedImage"] in boms
    assert values["engine"]["vllmImage"].replace("{version}", default_vllm_version().rpartition(".")[0]) in boms


def test_base_with_another_vllm_than_its_tag_says_is_refused(folder: Path) -> None:
    with pytest.raises(BootstrapError, match=r"has vLLM 0\.31\.0\+cu130, not 0\.32\.0"):
        build_with_docker(stand_in(folder, vllm="0.31.0"), vllm_version="0.32.0", timeline=Timeline())
