"""Forwarded ports of a cluster: which there are, and opening one more. `forwarder.py` does the relaying, a process for each."""

import json
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.devcluster import processes
from tools.devcluster.failure import DevClusterError
from tools.devcluster.layout import REPOSITORY, Layout
from tools.devcluster.processes import ProcessIdentity

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Forward:
    """A listening port of the machine, the address in the box that it stands for, and the process between."""

    name: str
    listen_port: int
    address: str
    port: int
    process: ProcessIdentity


def open_forward(*, layout: Layout, box_pid: int, name: str, address: str, port: int, listen_port: int = 0) -> Forward:
    """Forwards a port of 127.0.0.1, a free one for 0, until the box ends. One that lives already is given again."""
    known = next((forward for forward in live_forwards(layout) if forward.name == name), None)
    if known and known.address == address and listen_port in {0, known.listen_port}:
        return known
    if known:
        listen_port = listen_port or known.listen_port
        if listen_port == known.listen_port:
            processes.end(known.process)  # otherwise it works on until the new port is ours
    # The socket is made here: a port that is taken is an error of this call, and connections queue until the process accepts.
    try:
        listener = socket.create_server((_HOST, listen_port))
    except (OSError, OverflowError) as error:
        raise DevClusterError(
            f"port {listen_port} of {_HOST} cannot be used ({error}); choose another, or 0 for a free one"
        ) from error
    with listener:
        number = listener.getsockname()[1]
        target = [str(listener.fileno()), str(box_pid), address, str(port)]
        process = processes.start_daemon(
            [sys.executable, "-m", "tools.devcluster.forwarder", *target],
            log=layout.log_of("forwarder"),
            pid_file=layout.forwards / f"{number}.pid",
            environment={"PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
            pass_fds=(listener.fileno(),),
        )
    if known:
        processes.end(known.process)
    forward = Forward(name=name, listen_port=number, address=address, port=port, process=process)
    (layout.forwards / f"{name}.json").write_text(json.dumps(asdict(forward)))
    return forward


def live_forwards(layout: Layout) -> list[Forward]:
    """Those whose process lives."""
    return [forward for forward in map(_read, sorted(layout.forwards.glob("*.json"))) if forward.process.is_alive()]


def last_port(layout: Layout, *, name: str) -> int:
    """The port that a forward had before it died, so that copies of it hold; 0 when there was none."""
    path = layout.forwards / f"{name}.json"
    return _read(path).listen_port if path.exists() else 0


def _read(path: Path) -> Forward:
    document = json.loads(path.read_text())
    return Forward(**{**document, "process": ProcessIdentity(**document["process"])})
