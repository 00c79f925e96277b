"""Bootstrap without a bare machine: the clock's table, uv's settings, programs that fail."""

import shutil
import sys
from pathlib import Path

import pytest

from tools.bootstrap import BootstrapError, Timeline, cache_folder, packages
from tools.bootstrap.locked_install import uv_environment
from tools.bootstrap.process import run

PIP_CONFIGURATION = """:env:.cert='/ca.crt'
:env:.default-timeout='180'
global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'
global.find-links='/a /b'
global.index-url='https://mirror.example/simple'
download.index-url='https://not.for.install.example/simple'
"""


def test_uv_gets_the_settings_that_pip_has() -> None:
    assert uv_environment(PIP_CONFIGURATION, present={}) == {
        "SSL_CERT_FILE": "/ca.crt",
        "UV_DEFAULT_INDEX": "https://mirror.example/simple",
        "UV_FIND_LINKS": "/a,/b",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
    }


def test_settings_made_for_uv_itself_win() -> None:
    found = uv_environment(
        PIP_CONFIGURATION, present={"UV_DEFAULT_INDEX": "https://own.example/simple", "SSL_CERT_FILE": "/own.crt"}
    )
    assert set(found) == {"UV_FIND_LINKS", "UV_INDEX"}


def test_failed_program_is_reported_with_its_last_words() -> None:
    with pytest.raises(BootstrapError) as failure:
        run([sys.executable, "-c", "import sys; print('to stdout'); sys.exit('no space left')"])
    assert "exit code 1" in str(failure.value)
    assert "to stdout" in str(failure.value)
    assert "no space left" in str(failure.value)


def test_absent_program_is_named() -> None:
    with pytest.raises(BootstrapError, match="surely-not-a-program: no such program"):
        run(["surely-not-a-program"])


def test_table_names_every_step_even_a_failed_one(capsys: pytest.CaptureFixture[str]) -> None:
    timeline = Timeline()
    with timeline.step("first", "what it does"):
        pass
    with pytest.raises(RuntimeError), timeline.step("second"):
        raise RuntimeError
    assert "first: what it does\n" in capsys.readouterr().out
    names = [line.split("  ")[1] for line in timeline.table().splitlines()[1:]]
    assert sorted(name.strip() for name in names) == ["everything else", "first", "second", "total"]


@pytest.mark.parametrize(
    ("configured", "below"),
    [("{tmp}/cache", "cache/hisparse"), ("relative", "home/.cache/hisparse"), ("", "home/.cache/hisparse")],
)
def test_cache_follows_the_xdg_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: str, below: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", configured.format(tmp=tmp_path))
    folder = cache_folder("images", "archives")
    assert folder == tmp_path / below / "images" / "archives"
    assert folder.is_dir()


def test_only_packages_whose_programs_are_missing_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, **_: None if program == "mmdebstrap" else f"/usr/bin/{program}")
    monkeypatch.setattr(packages, "CERTIFICATES", Path(__file__))
    assert packages.missing_packages(cluster=False, images=True) == ["mmdebstrap"]
    assert packages.missing_packages(cluster=False, images=False) == []


def test_machine_without_apt_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(packages, "CERTIFICATES", Path(__file__))
    with pytest.raises(BootstrapError, match=r"no apt-get to install it: buildah, mmdebstrap \("):
        packages.install_packages(cluster=False, images=True, timeline=Timeline())
