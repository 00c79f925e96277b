"""Folders of the cache that take minutes to make: whole or absent, whatever interrupts."""

import fcntl
import threading
from pathlib import Path

import pytest

from tools.bootstrap.cache import make_once


def make(folder: Path) -> None:
    (folder / "content").write_text("whole", encoding="utf-8")


def never(folder: Path) -> None:
    raise AssertionError(f"{folder} is there already")


def test_folder_is_made_once(tmp_path: Path) -> None:
    target = tmp_path / "0.31-new"
    make_once(target, make=make, kept="0.31-*", say=pytest.fail)
    make_once(target, make=never, kept="0.31-*", say=pytest.fail)
    assert (target / "content").read_text(encoding="utf-8") == "whole"


def test_interrupted_folder_is_absent_and_the_next_call_starts_anew(tmp_path: Path) -> None:
    target = tmp_path / "0.31-new"

    def interrupted(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_once(target, make=interrupted, kept="0.31-*", say=pytest.fail)
    assert not target.exists()
    make_once(target, make=make, kept="0.31-*", say=pytest.fail)
    assert [path.name for path in target.iterdir()] == ["content"]


def test_older_versions_go_away_when_the_new_one_is_there_and_only_those(tmp_path: Path) -> None:
    for name in ("0.31-old", "0.30-old"):
        (tmp_path / name).mkdir()
    with pytest.raises(OSError, match="disk full"):
        make_once(tmp_path / "0.31-new", make=disk_full, kept="0.31-*", say=pytest.fail)
    assert (tmp_path / "0.31-old").is_dir()
    make_once(tmp_path / "0.31-new", make=make, kept="0.31-*", say=pytest.fail)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["0.30-old", "0.31-new"]


def test_second_process_waits_says_so_and_finds_it_made(tmp_path: Path) -> None:
    target = tmp_path / "0.31-new"
    said: list[str] = []
    is_waiting = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        is_waiting.set()

    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = threading.Thread(target=make_once, args=(target,), kwargs={"make": never, "kept": "0.31-*", "say": say})
        waiting.start()
        assert is_waiting.wait(timeout=10)
        target.mkdir()
    waiting.join(timeout=10)
    assert not waiting.is_alive()
    assert said == [f"another process fills {tmp_path}: waiting for it"]


def disk_full(folder: Path) -> None:
    raise OSError(f"{folder}: disk full")
