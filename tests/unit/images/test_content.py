"""The image's key changes with everything that goes in, and with nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.images import content
from tools.images.recipes import OPERATOR, RUNTIME, RUNTIME_TEST

FILES = (
    "LICENSE",
    "README.md",
    "images/operator.Dockerfile",
    "operator/hisparse_operator/main.py",
    "pyproject.toml",
    "requirements/build.txt",
    "requirements/operator.txt",
    "runtime/hisparse_runtime/model.py",
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"content of {name}\n")
    monkeypatch.setattr(content, "REPOSITORY", root)
    return root


@pytest.fixture
def key(checkout: Path) -> Callable[[], str]:
    def of_checkout() -> str:
        assert checkout == content.REPOSITORY  # the key is of this checkout and not of the real one
        return content.image_key(OPERATOR, base_key="base")

    return of_checkout


@pytest.mark.parametrize("name", FILES)
def test_any_file_that_goes_in_changes_the_key(checkout: Path, key: Callable[[], str], name: str) -> None:
    before = key()
    assert len(before) == 12
    (checkout / name).write_text("something else\n")
    assert key() != before


def test_moved_and_removed_files_change_the_key(checkout: Path, key: Callable[[], str]) -> None:
    before = key()
    source = checkout / "runtime/hisparse_runtime/model.py"
    source.rename(source.with_name("renamed.py"))
    renamed = key()
    source.with_name("renamed.py").unlink()
    assert len({before, renamed, key()}) == 3


def test_bytecode_documents_and_other_locks_do_not(checkout: Path, key: Callable[[], str]) -> None:
    before = key()
    others = (
        "operator/hisparse_operator/__pycache__/main.pyc",
        "docs/tour.md",
        "requirements/dev.txt",
        "images/embedded.Dockerfile",
    )
    for name in others:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("new")
    assert key() == before


def test_another_base_is_another_image(checkout: Path, key: Callable[[], str]) -> None:
    assert checkout.exists()
    assert content.image_key(OPERATOR, base_key="newer") != key()


def test_context_holds_exactly_the_files_of_the_key_and_the_wheels(checkout: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "a-1-py3-none-any.whl").write_bytes(b"wheel")
    (checkout / "docs").mkdir()
    (checkout / "docs/tour.md").write_text("not in the image")
    with content.write_context(OPERATOR, wheels=wheels, folder=tmp_path) as context:
        found = {str(path.relative_to(context)) for path in context.rglob("*") if path.is_file()}
    assert found == {*FILES} - {"images/operator.Dockerfile"} | {"wheels/a-1-py3-none-any.whl"}
    assert not context.exists()


def test_labels_change_the_key(checkout: Path) -> None:
    (checkout / "images/runtime.Dockerfile").write_text("FROM scratch")
    assert content.image_key(RUNTIME, base_key="base") != content.image_key(RUNTIME_TEST, base_key="base")


def test_the_build_backend_is_hashed_once_where_nothing_else_is_locked(checkout: Path) -> None:
    assert [path.name for path in content._files("build")].count("build.txt") == 1
    assert checkout.exists()
