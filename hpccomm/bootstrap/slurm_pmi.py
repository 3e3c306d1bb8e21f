"""Between MPICH and Slurm's pmi2 plugin while MPI starts: values short enough that whole requests are read.

The plugin reads 1024 bytes of a request of PMI 1, and what is longer breaks the start. It tells MPICH that a value may
have 1024 bytes alone; with the command and the key before it, one that is not mostly zeros is longer than that. So
until MPI has started, all that both say goes through this process, which makes the length that MPICH hears a smaller
one. Then they are joined directly again. What an MPI says that speaks PMI 2 there, and what it hears, passes as it is.
"""

from __future__ import annotations

import os
import re
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

VARIABLE = "PMI_FD"
LONGEST_VALUE = 768  # leaves a third of what is read to commands, names and keys
_PMI_1 = re.compile(rb"cmd=init .*\bpmi_version=1\b.*\n")  # the first request, in these words for PMI 2 too
_MAXES = re.compile(rb"^(cmd=maxes .*\bvallen_max=)(\d+)", re.MULTILINE)
_AT_ONCE = 1 << 16


@contextmanager
def short_values(environ: Mapping[str, str]) -> Iterator[None]:
    """Make MPICH cut what it puts into short values, where a descriptor leads to a server of PMI; else do nothing."""
    descriptor = environ.get(VARIABLE, "")
    if not descriptor.isdecimal():
        yield
        return
    relay = _Relay(int(descriptor))
    try:
        yield
    finally:
        relay.end()


class _Relay:
    """Stands between a descriptor and what it leads to."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._server = descriptor, os.dup(descriptor)
        self._first = b""  # what was asked, to the end of the first request
        inner, self._client = socket.socketpair()
        with inner:
            os.dup2(inner.fileno(), descriptor)
        self._thread = threading.Thread(target=self._run, name="hpccomm-pmi", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Join both ends directly; nothing is on its way between requests."""
        os.dup2(self._server, self._descriptor)  # which closes this end of ours, so that the thread ends
        self._thread.join()
        self._client.close()
        os.close(self._server)

    def _run(self) -> None:
        poll = select.poll()
        for end in (self._client.fileno(), self._server):
            poll.register(end, select.POLLIN)
        while True:
            ready = {end for end, _ in poll.poll()}
            if self._client.fileno() in ready:
                if not (asked := self._client.recv(_AT_ONCE)):
                    return
                if b"\n" not in self._first:
                    self._first += asked
                while asked:
                    asked = asked[os.write(self._server, asked) :]
            if self._server in ready:
                if not (answer := os.read(self._server, _AT_ONCE)):
                    self._client.shutdown(socket.SHUT_RDWR)
                    return
                self._client.sendall(_MAXES.sub(_shorter, answer) if _PMI_1.match(self._first) else answer)


def _shorter(found: re.Match[bytes]) -> bytes:
    return found[1] + b"%d" % min(int(found[2]), LONGEST_VALUE)
