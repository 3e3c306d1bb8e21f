"""What MPICH and Slurm say to each other while MPI starts, and after that."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from hpccomm.bootstrap.slurm_pmi import LONGEST_VALUE, VARIABLE, short_values

MAXES = b"cmd=maxes rc=0 kvsname_max=256 keylen_max=256 vallen_max=%d\n"


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
        assert server.answer(b"cmd=get_maxes\n", MAXES % said) == MAXES % heard
        value = b"cmd=get_result rc=0 value=" + b"7F" * 100_000 + b"\n"
        assert server.answer(b"cmd=get kvsname=1.0 key=-allgather-1-1\n", value) == value
    assert server.answer(b"cmd=get_maxes\n", MAXES % said) == MAXES % said  # directly
    assert threading.active_count() == threads


def test_a_server_that_ends_is_heard_of(server: Server) -> None:
    with short_values(server.environ):
        server.end.close()
        assert os.read(server.descriptor, 10) == b""


@pytest.mark.parametrize("environ", [{}, {VARIABLE: ""}, {VARIABLE: "none"}])
def test_nothing_is_done_without_a_server(environ: dict[str, str]) -> None:
    with short_values(environ):
        assert "hpccomm-pmi" not in {thread.name for thread in threading.enumerate()}
