import contextlib
import dataclasses
import os
import subprocess
import time
from pathlib import Path

import pytest

from tools.devcluster import processes
from tools.devcluster.failure import DevClusterError
from tools.devcluster.processes import end, first_child, identity_of, read_identity, start_daemon


def test_a_daemon_lives_on_its_own_and_is_ended(tmp_path: Path) -> None:
    identity = start_daemon(["sleep", "600"], log=tmp_path / "log", pid_file=tmp_path / "pid")
    try:
        assert identity.is_alive()
        assert os.getsid(identity.pid) != os.getsid(0)
    finally:
        end(identity)
    assert not identity.is_alive()


def test_the_command_writes_into_the_log_and_gets_its_environment(tmp_path: Path) -> None:
    log = tmp_path / "log"
    identity = start_daemon(
        ["sh", "-c", 'echo "$GREETING"; exec sleep 600'], log=log, pid_file=tmp_path / "pid", environment={"GREETING": "hello"}
    )
    deadline = time.monotonic() + 20
    while log.read_text() != "hello\n" and time.monotonic() < deadline:
        time.sleep(0.01)
    end(identity)
    assert log.read_text() == "hello\n"


def test_the_log_says_why_a_command_could_not_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with contextlib.suppress(DevClusterError):  # raised only when the shell has ended before it was looked at
        start_daemon(["/no/such/program"], log=log, pid_file=tmp_path / "pid")
    deadline = time.monotonic() + 20
    while "/no/such/program: not found" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "/no/such/program: not found" in log.read_text()


def test_a_command_that_ends_before_it_is_known_is_an_error_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "identity_of", lambda _: None)
    (tmp_path / "log").write_text("cannot do that\n")
    with pytest.raises(DevClusterError, match=r"true ended at once; its log .* says:\n    cannot do that"):
        start_daemon(["true"], log=tmp_path / "log", pid_file=tmp_path / "pid")


def test_another_process_with_the_same_pid_is_not_the_same() -> None:
    mine = identity_of(os.getpid())
    assert mine is not None
    assert mine.is_alive()
    assert not dataclasses.replace(mine, start_ticks=mine.start_ticks - 1).is_alive()
    assert not dataclasses.replace(mine, boot_id="an earlier boot").is_alive()


def test_a_zombie_is_not_alive() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has collected it
        assert identity_of(process.pid) is None


def test_the_first_child_is_found() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 600 & wait"]) as process:
        parent = identity_of(process.pid)
        assert parent is not None
        deadline = time.monotonic() + 20
        while (child := first_child(parent)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert child is not None
        assert child.pid != process.pid
        end(child)


@pytest.mark.parametrize("content", [None, "", "{", '{"pid": 1}'])
def test_an_identity_file_that_is_absent_or_torn_counts_as_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "box.json"
    if content is not None:
        path.write_text(content)
    assert read_identity(path) is None


def test_an_identity_survives_its_file(tmp_path: Path) -> None:
    mine = identity_of(os.getpid())
    assert mine is not None
    mine.write(tmp_path / "box.json")
    assert read_identity(tmp_path / "box.json") == mine
