"""The supervisor owns the signals and the children of its process, so it runs in one of its own here, as in the box."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.devcluster.supervisor import ComponentState

DRIVER = """
import os, sys
from pathlib import Path
from tools.devcluster.configuration import Component
from tools.devcluster.supervisor import Supervisor

folder = Path(sys.argv[1])
supervisor = Supervisor(
    log_of=lambda name: folder / f"{name}.log", held=folder / "held", state_file=folder / "state.json", environment=os.environ
)
supervisor.start(Component("steady", ("sh", "-c", "echo started; exec sleep 600")))
code = supervisor.run_once("once", ["sh", "-c", "cat; exit 7"], stdin=folder / "input")
(folder / "code").write_text(str(code))
while True:
    supervisor.turn(timeout_seconds=60)
"""


class Driven:
    def __init__(self, *, pid: int, folder: Path) -> None:
        self.pid = pid
        self.folder = folder

    def state(self) -> ComponentState:
        try:
            states: dict[str, ComponentState] = json.loads((self.folder / "state.json").read_text())
        except FileNotFoundError:
            return ComponentState(pid=0, ends=0, held=False)
        return states["steady"]

    def wait(self, holds: Callable[[ComponentState], bool]) -> ComponentState:
        deadline = time.monotonic() + 30
        while not holds(state := self.state()):
            assert time.monotonic() < deadline, state
            time.sleep(0.02)
        return state

    def hold(self, *, held: bool) -> None:
        marker = self.folder / "held" / "steady"
        if held:
            marker.touch()
        else:
            marker.unlink()
        os.kill(self.pid, signal.SIGUSR1)


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    (tmp_path / "held").mkdir()
    (tmp_path / "input").write_text("from a file")
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], env=environment, start_new_session=True) as process:
        supervised = Driven(pid=process.pid, folder=tmp_path)
        try:
            yield supervised
        finally:
            pid = supervised.state()["pid"]
            process.kill()
            if pid:
                os.kill(pid, signal.SIGKILL)


def test_a_component_that_ends_is_started_again(driven: Driven) -> None:
    first = driven.wait(lambda state: state["pid"] != 0)
    os.kill(first["pid"], signal.SIGKILL)
    second = driven.wait(lambda state: state["ends"] == 1 and state["pid"] != 0)
    assert second["pid"] != first["pid"]
    assert "steady ended with -9, starting it again" in (driven.folder / "steady.log").read_text()


def test_a_held_component_stays_down_until_it_is_let_go(driven: Driven) -> None:
    driven.wait(lambda state: state["pid"] != 0)
    driven.hold(held=True)
    driven.wait(lambda state: state["held"] and state["pid"] == 0)
    time.sleep(1.5)  # longer than the pause before a restart
    assert driven.state() == ComponentState(pid=0, ends=1, held=True)
    driven.hold(held=False)
    driven.wait(lambda state: not state["held"] and state["pid"] != 0)
    assert (driven.folder / "steady.log").read_text().count("started") == 2


def test_a_program_that_runs_once_gets_its_input_and_gives_its_exit_code(driven: Driven) -> None:
    driven.wait(lambda _: (driven.folder / "code").exists() and (driven.folder / "code").read_text() != "")
    assert (driven.folder / "code").read_text() == "7"
    assert (driven.folder / "once.log").read_text() == "from a file"


def test_components_start_with_no_signal_blocked(driven: Driven) -> None:
    state = driven.wait(lambda state: state["pid"] != 0)
    blocked = next(line for line in Path(f"/proc/{state['pid']}/status").read_text().splitlines() if line.startswith("SigBlk"))
    assert int(blocked.split()[1], 16) == 0
