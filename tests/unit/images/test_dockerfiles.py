"""What the cluster relies on in the images, read from the Dockerfiles that every way of building uses."""

import re
from pathlib import Path

import pytest

from tools.images.content import default_vllm_version
from tools.images.recipes import RUNTIME_TEST
from tools.upstream.trees import locked_wheels

IMAGES = Path(__file__).resolve().parents[3] / "images"


@pytest.mark.parametrize(("name", "entry"), [("operator", '["hisparse-operator"]'), ("embedded", '["hisparse"]')])
def test_image_starts_the_program_as_a_numeric_user(name: str, entry: str) -> None:
    last_stage = (IMAGES / f"{name}.Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2].splitlines()
    assert "USER 10001:10001" in last_stage
    assert f"ENTRYPOINT {entry}" in last_stage
    # The user is in no /etc/passwd, and not every runtime sets a home for it.
    assert any(line.startswith("ENV ") and line.endswith(" HOME=/tmp") for line in last_stage)
    # Installers and compilers belong to the stages before: the last one only copies.
    assert not [line for line in last_stage if line.startswith("RUN ")]


@pytest.mark.parametrize(("name", "num_installs"), [("operator", 2), ("embedded", 2), ("runtime", 1)])
def test_every_installed_file_is_checked_against_a_hash(name: str, num_installs: int) -> None:
    text = (IMAGES / f"{name}.Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [line for line in text.splitlines() if "pip" in line and " -r " in line]
    assert len(installs) == num_installs
    assert all("--require-hashes" in line for line in installs)


def test_runtime_image_changes_nothing_of_its_base_but_the_search_path() -> None:
    text = (IMAGES / "runtime.Dockerfile").read_text(encoding="utf-8")
    last_stage = text.rpartition("\nFROM ")[2].replace("\\\n", " ").splitlines()
    instructions = [line.split()[0] for line in last_stage[1:] if line and not line.startswith(("#", " "))]
    # Neither USER, ENV, WORKDIR nor ENTRYPOINT: `docker run IMAGE MODEL` serves as the base does.
    assert set(instructions) == {"ARG", "LABEL", "COPY", "RUN"}
    run = next(line for line in last_stage if line.startswith("RUN "))
    assert not re.search(r"\b(pip|uv|apt-get)\b", run)
    assert re.findall(r"\$packages/([\w.]+)", run) == ["hisparse.pth"]


@pytest.mark.parametrize("name", ["operator", "embedded", "runtime"])
def test_no_step_reads_another_stage_by_a_mount(name: str) -> None:
    """buildah 1.28 then takes the step from its cache although that stage has changed: a new tag with old code."""
    steps = [line for line in (IMAGES / f"{name}.Dockerfile").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert not [line for line in steps if "--mount" in line]


def test_runtime_image_has_the_newest_vllm_whose_planner_we_are_compared_with() -> None:
    newest = max(locked_wheels().items(), key=lambda wheel: tuple(map(int, wheel[0].split("."))))[1]
    assert newest.startswith(f"vllm=={default_vllm_version()} ")


def test_runtime_image_without_vllm_says_so() -> None:
    labels = RUNTIME_TEST.labels
    assert labels["org.opencontainers.image.title"] == "hisparse-runtime-test"
    assert labels["org.opencontainers.image.description"].startswith("For tests only: ")
