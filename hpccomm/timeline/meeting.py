"""Where the ranks meet rank 0, one after the other: it answers what its clock says, and takes what they bring.

It is TCP to the address that all hosts reach, as torch's store is, so that it needs neither MPI nor a store, also when
the program ends. Who has been there waits, asleep, until all have, so that no rank's clock is read while others spin.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import BufferedRWPair

from hpccomm.timeline.clock import Reading, read

_ASKS, _BRINGS, _GOES = b"?", b"=", b"."
_TIME, _LENGTH = struct.Struct("!d"), struct.Struct("!Q")


@dataclass(frozen=True)
class Place:
    """Where rank 0 is met.

    Attributes:
        address: Its host.
        port: Where it listens.
        token: What only this job's ranks know.
    """

    address: str
    port: int
    token: bytes


def listen(address: str, token: bytes, guests: int) -> tuple[socket.socket, Place]:
    """Open rank 0's end, which no guest need wait for."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, 0), family=family, backlog=max(guests, 1))
    return server, Place(address, server.getsockname()[1], token)


def receive(
    server: socket.socket, token: bytes, guests: int, clock: Callable[[], float], timeout_s: float
) -> Iterator[bytes]:
    """Meet guests, and give what each brings; they go when all have been here.

    Raises:
        OSError: Not all came in time, or one broke off.
    """
    end = time.monotonic() + timeout_s
    with ExitStack() as opened:
        streams: list[BufferedRWPair] = []
        while len(streams) < guests:
            server.settimeout(max(end - time.monotonic(), 0.001))
            connection = opened.enter_context(server.accept()[0])
            stream = _stream(connection, max(end - time.monotonic(), 0.001), opened)
            if stream.read(len(token)) == token:
                yield _hear(stream, clock)
                streams.append(stream)
        for stream in streams:
            with suppress(OSError):
                _write(stream, _GOES)


def visit(place: Place, clock: Callable[[], float], bring: Callable[[Reading], bytes], timeout_s: float) -> Reading:
    """Meet rank 0: compare clocks, leave what `bring` makes of that, and wait until all have been there.

    Raises:
        OSError: Rank 0 is not there, or not in time.
    """
    with ExitStack() as opened:
        connection = opened.enter_context(socket.create_connection((place.address, place.port), timeout_s))
        stream = _stream(connection, timeout_s, opened)
        _write(stream, place.token)

        def ask() -> float:
            _write(stream, _ASKS)
            return float(_TIME.unpack(_read(stream, _TIME.size))[0])

        reading = read(clock, ask)
        brought = bring(reading)
        _write(stream, _BRINGS, _LENGTH.pack(len(brought)), brought)
        stream.read(len(_GOES))  # nothing where rank 0 could not wait for all
    return reading


def _hear(stream: BufferedRWPair, clock: Callable[[], float]) -> bytes:
    while (word := _read(stream, 1)) == _ASKS:
        _write(stream, _TIME.pack(clock()))
    if word != _BRINGS:
        raise ConnectionError("a rank says what is not understood")
    return _read(stream, _LENGTH.unpack(_read(stream, _LENGTH.size))[0])


def _stream(connection: socket.socket, timeout_s: float, opened: ExitStack) -> BufferedRWPair:
    connection.settimeout(timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened.enter_context(connection.makefile("rwb"))


def _write(stream: BufferedRWPair, *data: bytes) -> None:
    for one in data:
        stream.write(one)
    stream.flush()


def _read(stream: BufferedRWPair, count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise ConnectionError("a rank broke off")
    return data
