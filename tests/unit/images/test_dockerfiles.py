"""What the cluster relies on in the images, read from the Dockerfiles that every way of building uses."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", ["operator", "embedded"])
def test_every_installed_file_is_checked_against_a_hash(name: str) -> None:
    text = (IMAGES / f"{name}.Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    installs = [line for line in text.splitlines() if "pip" in line and " -r " in line]
    assert len(installs) == 2
    assert all("--require-hashes" in line for line in installs)
