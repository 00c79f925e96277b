import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tools.devcluster import processes
from tools.devcluster.failure import DevClusterError
from tools.devcluster.forwarder import serve
from tools.devcluster.forwards import last_port, live_forwards, open_forward
from tools.devcluster.layout import Layout

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pidfds and network namespaces are Linux's")
ANSWER_BYTES = 3_000_000


@asynccontextmanager
async def forwarding(port: int) -> AsyncIterator[int]:
    """A forwarder to 127.0.0.1:`port` in this process; gives its own port. A pipe that ends stands for the box."""
    box, end_of_box = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        task = asyncio.create_task(serve(listener, box_descriptor=box, address="127.0.0.1", port=port))
        yield listener.getsockname()[1]
        os.close(end_of_box)
        await asyncio.wait_for(task, timeout=30)
    os.close(box)


async def answer_after_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends only after the client has finished sending, as HTTP/1.0 with a half-closed connection does."""
    received = await reader.read()
    writer.write(received[::-1] + b"x" * ANSWER_BYTES)
    await writer.drain()
    writer.close()


def test_bytes_go_both_ways_and_a_half_closed_connection_still_gets_its_answer() -> None:
    async def scenario() -> bytes:
        inner = await asyncio.start_server(answer_after_the_end, "127.0.0.1", 0)
        async with inner, forwarding(inner.sockets[0].getsockname()[1]) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"abc")
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

    answer = asyncio.run(scenario())
    assert answer[:3] == b"cba"
    assert len(answer) == 3 + ANSWER_BYTES


def test_a_refused_connection_inside_is_a_reset_outside() -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            nobody = unused.getsockname()[1]
        async with forwarding(nobody) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.transport.abort()

    asyncio.run(scenario())


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(name="x", folder=tmp_path)
    made.logs.mkdir()
    made.forwards.mkdir()
    return made


def test_a_port_that_is_taken_is_an_error_that_names_it(layout: Layout) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DevClusterError, match=f"port {port} of 127.0.0.1 cannot be used"):
            open_forward(layout=layout, box_pid=os.getpid(), name="web", address="127.0.0.1", port=1, listen_port=port)
    assert live_forwards(layout) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="entering a network namespace needs root")
def test_the_same_forward_is_given_again_and_a_failed_move_leaves_it_working(layout: Layout) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(["sleep", "600"]) as box:
        target = server.getsockname()[1]
        first = open_forward(layout=layout, box_pid=box.pid, name="web", address="127.0.0.1", port=target)
        try:
            assert open_forward(layout=layout, box_pid=box.pid, name="web", address="127.0.0.1", port=target) == first
            with pytest.raises(DevClusterError, match="cannot be used"):
                open_forward(layout=layout, box_pid=box.pid, name="web", address="127.0.0.1", port=target, listen_port=target)
            assert live_forwards(layout) == [first]
            assert last_port(layout, name="web") == first.listen_port
            with socket.create_connection(("127.0.0.1", first.listen_port), timeout=30) as client:
                accepted, _ = server.accept()
                with accepted:
                    client.sendall(b"ping")
                    assert accepted.recv(4) == b"ping"
        finally:
            box.kill()
            processes.wait_for_end(first.process, timeout_seconds=30)  # the forwarder ends with the box
    assert live_forwards(layout) == []
