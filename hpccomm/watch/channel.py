"""The side channel: ranks ask each other how far they are, by UDP, apart from all groups' traffic.

Every rank's watchdog answers, whatever its main thread does; a rank that does not answer is stopped, dead or cut off.
Datagrams carry a token that only this job's ranks know. It judges nothing and knows no operation.
"""

from __future__ import annotations

import errno
import json
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

_LARGEST = 60_000
_ANSWER_S = 0.3
_ASK_AGAIN_S = 0.1
_RECVERR = {socket.AF_INET: (socket.IPPROTO_IP, 11), socket.AF_INET6: (socket.IPPROTO_IPV6, 25)}
_MSG_ERRQUEUE = 0x2000

Answer = dict[str, Any]
REFUSED: Answer = {"refused": True}
"""Stands for the answer of a rank whose host says that nothing listens there any more."""


@dataclass(frozen=True)
class Peer:
    """Where a rank's watchdog listens."""

    address: str
    port: int


def await_any(descriptors: Iterable[int], timeout_s: float) -> list[int]:
    """Wait until some may be read or have an error, whatever their numbers; closed ones (-1) are passed over.

    Returns:
        Those that are ready.
    """
    poll = select.poll()
    for descriptor in descriptors:
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(timeout_s * 1000)]


class Channel:
    """This rank's end.

    Args:
        address: This host's address that all other hosts reach.
        token: The job's secret.
    """

    def __init__(self, address: str, token: str) -> None:
        self._address, self.token = address, token
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = self._open()
        self.peers: Sequence[Peer] = ()

    @property
    def local_name(self) -> str:
        """A name of this job on this host that does not give the token away."""
        return f"hpccomm/{sha256(self.token.encode()).hexdigest()[:24]}"

    @property
    def port(self) -> int:
        """The port where this rank answers."""
        return int(self.socket.getsockname()[1])

    def ask(
        self, question: Mapping[str, Any], ranks: Iterable[int], meanwhile: Callable[[], None]
    ) -> dict[int, Answer]:
        """Ask ranks and give what they answer within a fraction of a second; those that do not are left out.

        Args:
            question: What is asked.
            ranks: Who is asked.
            meanwhile: Called when something arrives for this rank itself: the others may be asking too.
        """
        pending = {self._place(self.peers[rank]): rank for rank in ranks}
        answers: dict[int, Answer] = {}
        with self._open() as ours:
            self._report_errors(ours)
            end = time.monotonic() + _ANSWER_S
            while pending and time.monotonic() < end:
                for place in pending:
                    self._send(ours, {"ask": question}, place)
                self._collect(ours, pending, answers, time.monotonic() + _ASK_AGAIN_S, meanwhile)
        return answers

    def tell(self, news: Mapping[str, Any], ranks: Iterable[int]) -> None:
        """Tell ranks something that needs no answer; thrice, as datagrams may be lost."""
        places = [self._place(self.peers[rank]) for rank in ranks]
        with self._open() as ours:
            for place in places * 3:
                self._send(ours, {"tell": news}, place)

    def serve(self, answer: Callable[[Answer], Answer], hear: Callable[[Answer], None]) -> None:
        """Take all datagrams that have arrived: answer questions, hear news."""
        while self.socket.fileno() >= 0:
            try:
                data, place = self.socket.recvfrom(_LARGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # what an earlier answer met
                continue
            message = self._read(data)
            if "ask" in message:
                self._send(self.socket, {"answer": answer(message["ask"])}, place)
            elif "tell" in message:
                hear(message["tell"])

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()

    def _open(self) -> socket.socket:
        opened = socket.socket(self.family, socket.SOCK_DGRAM)
        opened.setblocking(False)
        opened.bind((self._address, 0))
        return opened

    def _report_errors(self, ours: socket.socket) -> None:
        level, option = _RECVERR[self.family]
        with suppress(OSError):
            ours.setsockopt(level, option, 1)

    def _place(self, peer: Peer) -> Any:
        return (peer.address, peer.port) if self.family == socket.AF_INET else (peer.address, peer.port, 0, 0)

    def _send(self, ours: socket.socket, message: Mapping[str, Any], place: Any) -> None:
        with suppress(OSError):
            ours.sendto(json.dumps({"token": self.token, **message}).encode(), place)

    def _read(self, data: bytes) -> dict[str, Any]:
        try:
            message = json.loads(data)
        except ValueError:
            return {}
        known = isinstance(message, dict) and message.get("token") == self.token
        return message if known else {}

    def _collect(
        self,
        ours: socket.socket,
        pending: dict[Any, int],
        answers: dict[int, Answer],
        until: float,
        meanwhile: Callable[[], None],
    ) -> None:
        while pending and (left := until - time.monotonic()) > 0:
            if self.socket.fileno() in await_any([ours.fileno(), self.socket.fileno()], left):
                meanwhile()
            refused = self._refusals(ours)
            for place in [place for place in pending if place[:2] in refused]:
                answers[pending.pop(place)] = REFUSED
            with suppress(OSError):
                data, place = ours.recvfrom(_LARGEST)
                found = self._read(data).get("answer")
                if found is not None and place in pending:
                    answers[pending.pop(place)] = found

    def _refusals(self, ours: socket.socket) -> set[tuple[str, int]]:
        """Give the places whose hosts said that the port is closed."""
        places = set()
        with suppress(OSError):
            while True:
                _, ancillary, _, place = ours.recvmsg(_LARGEST, 512, _MSG_ERRQUEUE)
                codes = [struct.unpack_from("I", data)[0] for _, _, data in ancillary if len(data) >= 4]
                if errno.ECONNREFUSED in codes and place:
                    places.add((place[0], place[1]))
        return places
