"""Lets the machine reach an address inside of the box: listens outside, connects inside.

A socket stays in the network namespace in which it was made. So the listening socket is made first, then the process moves
into the box's network namespace, and what it connects from there on is inside. No interface and no route is added.
"""

import asyncio
import ctypes
import os
import socket
import struct
import sys
from pathlib import Path

_CLONE_NEWNET = 0x40000000  # os.setns is there from Python 3.12 on
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CHUNK_BYTES = 256 * 1024


def main(arguments: list[str]) -> None:
    """`python -m tools.devcluster.forwarder LISTENING_FD BOX_PID ADDRESS PORT`; ends with the box."""
    descriptor, box_pid, address, port = int(arguments[0]), int(arguments[1]), arguments[2], int(arguments[3])
    listener = socket.socket(fileno=descriptor)
    box_descriptor = os.pidfd_open(box_pid)
    enter_network(box_pid)
    asyncio.run(serve(listener, box_descriptor=box_descriptor, address=address, port=port))


def enter_network(pid: int) -> None:
    """Moves this thread into the network namespace of process `pid`."""
    descriptor = os.open(Path(f"/proc/{pid}/ns/net"), os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"setns into the network of process {pid}: {os.strerror(number)}")
    finally:
        os.close(descriptor)


async def serve(listener: socket.socket, *, box_descriptor: int, address: str, port: int) -> None:
    """Relays every connection to `address`:`port` until the process behind `box_descriptor` (a pidfd) has ended."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(address, port)
        except OSError:
            _reset(writer)  # the nearest thing to "connection refused" that is left after an accept
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, inner_writer))
                tasks.create_task(_pump(inner_reader, writer))
        except* OSError:
            _reset(writer)
            _reset(inner_writer)
        finally:
            inner_writer.close()
            writer.close()

    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(box_descriptor, ended.set)
    server = await asyncio.start_server(relay, sock=listener)
    await ended.wait()
    server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies until the end, and passes the end on: one side may finish sending and still wait for the answer."""
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


if __name__ == "__main__":
    main(sys.argv[1:])
