"""What MPICH and Slurm say to each other while MPI starts, and after that."""

from __future__ import annotations

import itertools
import os
import select
import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from hpccomm.bootstrap.slurm_pmi import LONGEST_VALUE, VARIABLE, short_values

MAXES = b"cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=%d\n"


PMI_1 = b"cmd=init pmi_version=1 pmi_subversion=1\n", b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"
PMI_2 = b"cmd=init pmi_version=2 pmi_subversion=0\n", b"cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"
"""The first request and its answer; after those of PMI 2 its messages have a length before them and no end of line."""

QUIET_S = 2.0


class Server:
    """The other end of a descriptor; answers each request."""

    def __init__(self) -> None:
        self.end, client = socket.socketpair()
        self.descriptor = client.detach()
        self.environ = {VARIABLE: str(self.descriptor)}

    def answer(self, request: bytes, answer: bytes) -> bytes:
        """Send a request from the client's end, see that it comes as it is, and give what the client gets."""
        os.write(self.descriptor, request)
        got = b""
        while len(got) < len(request):
            got += self.end.recv(1 << 20)
        assert got == request
        self.end.sendall(answer)
        heard = b""
        while not heard.endswith(b"\n"):
            heard += os.read(self.descriptor, 1 << 20)
        return heard

    def passed_on(self, parts: Sequence[bytes], *, to_client: bool) -> bytes:
        """Send parts of a message one by one, and give what comes out at the other end until it is all or quiet."""
        ends = [self.end.fileno(), self.descriptor]
        source, sink = ends if to_client else reversed(ends)
        got = b""
        for size, part in zip(itertools.accumulate(map(len, parts)), parts, strict=True):
            os.write(source, part)
            while len(got) < size and select.select([sink], [], [], QUIET_S)[0]:
                got += os.read(sink, 1 << 20)
        return got


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.end.close()
    os.close(made.descriptor)


@pytest.mark.parametrize(("said", "heard"), [(1024, LONGEST_VALUE), (512, 512)])
def test_values_are_short_while_mpi_starts(server: Server, said: int, heard: int) -> None:
    threads = threading.active_count()
    with short_values(server.environ):
        assert server.answer(*PMI_1) == PMI_1[1]
        assert server.answer(b"cmd=get_maxes\n", MAXES % said) == MAXES % heard
        value = b"cmd=get_result rc=0 value=" + b"7F" * 100_000 + b"\n"
        assert server.answer(b"cmd=get kvsname=1.0 key=-allgather-1-1\n", value) == value
    assert server.answer(b"cmd=get_maxes\n", MAXES % said) == MAXES % said  # directly
    assert threading.active_count() == threads


@pytest.mark.parametrize("parts", [1, 2, 3], ids="in {}".format)
def test_messages_of_pmi_2_pass_as_they_are(server: Server, parts: int) -> None:
    """A key's value is any bytes; there are those in which it looks like an answer of PMI 1, and beginnings of it."""
    values = [bytes(range(256)) * 300, b"a\n" + MAXES % 1024, MAXES % 1024, b"\n" + MAXES % 99999 + b"7F" * 600]
    bodies = [b"cmd=kvs-get-response;thrid=0;rc=0;found=TRUE;value=" + value + b";" for value in values]
    with short_values(server.environ):
        assert server.answer(*PMI_2) == PMI_2[1]
        for body in (*bodies, MAXES % 1024):
            length = b"%6d" % len(body)
            message = {1: [length + body], 2: [length, body], 3: [length, body[:5], body[5:]]}[parts]
            for to_client in (False, True):
                assert server.passed_on(message, to_client=to_client) == length + body
    assert server.passed_on([MAXES % 1024], to_client=True) == MAXES % 1024


def test_what_begins_as_no_pmi_that_is_known_passes_as_it_is(server: Server) -> None:
    with short_values(server.environ):
        assert server.passed_on([b"cmd=in", b"it pmi_version=11\n"], to_client=False) == b"cmd=init pmi_version=11\n"
        assert server.passed_on([MAXES % 1024], to_client=True) == MAXES % 1024


def test_the_first_request_may_come_in_parts(server: Server) -> None:
    with short_values(server.environ):
        assert server.passed_on([PMI_1[0][:20], PMI_1[0][20:]], to_client=False) == PMI_1[0]
        assert server.passed_on([MAXES % 1024], to_client=True) == MAXES % LONGEST_VALUE


def test_a_server_that_ends_is_heard_of(server: Server) -> None:
    with short_values(server.environ):
        server.end.close()
        assert os.read(server.descriptor, 10) == b""


@pytest.mark.parametrize("environ", [{}, {VARIABLE: ""}, {VARIABLE: "none"}])
def test_nothing_is_done_without_a_server(environ: dict[str, str]) -> None:
    with short_values(environ):
        assert "hpccomm-pmi" not in {thread.name for thread in threading.enumerate()}
