"""Worlds inside ranks: started and closed again and again, refused alike on all ranks, with the right groups."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import torch
import torch.distributed as dist
from mpi4py import MPI

import hpccomm
from hpccomm.errors import (
    BackendError,
    ExpressionError,
    HpccommError,
    LaunchError,
    NetworkError,
    OptionError,
    TopologyError,
    WorldError,
)

pytestmark = pytest.mark.mpi

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
BACKENDS = ("mpi4py", "gloo", "hierarchical(gloo, mpi4py)", "hierarchical(mpi4py, gloo)", "auto")
# Node of each rank, by the number of ranks
PATTERNS = {
    1: ["A"],
    2: ["AA", "AB"],
    3: ["AAB", "ABA", "BAA", "ABC"],
    4: ["AAAA", "AABB", "ABAB", "ABBA", "BAAA", "ABCC", "CABC"],
}


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """See that every test gives back what it found."""
    before = environment()
    yield
    assert environment() == before


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def total(group: dist.ProcessGroup | None = None) -> float:
    tensor = torch.full((7,), 10.0**RANK)
    dist.all_reduce(tensor, group=group)
    assert len(set(tensor.tolist())) == 1
    return float(tensor[0])


def expected(ranks: list[int]) -> float:
    return float(sum(10**rank for rank in ranks))


@pytest.mark.parametrize("pattern", PATTERNS[SIZE])
@pytest.mark.parametrize("backend", ["auto", "gloo"])
def test_groups_of_a_pattern_of_nodes(monkeypatch: pytest.MonkeyPatch, pattern: str, backend: str) -> None:
    monkeypatch.setenv("HPCCOMM_NODE_ID", pattern[RANK])
    local = [pattern[:rank].count(node) for rank, node in enumerate(pattern)]
    inside = [rank for rank in range(SIZE) if pattern[rank] == pattern[RANK]]
    across = [rank for rank in range(SIZE) if local[rank] == local[RANK]]
    with hpccomm.init(backend) as world:
        assert dist.get_process_group_ranks(world.intra_node) == inside
        assert dist.get_process_group_ranks(world.inter_node) == across
        assert total() == total(world.group) == expected(list(range(SIZE)))
        assert total(world.intra_node) == expected(inside)
        assert total(world.inter_node) == expected(across)
        check_objects(world.intra_node, inside)
        check_objects(world.inter_node, across)
        check_objects(world.group, list(range(SIZE)))
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        found = tuple(int(os.environ[name]) for name in names)
        assert found == (RANK, SIZE, local[RANK], len(inside), list(dict.fromkeys(pattern)).index(pattern[RANK]))


def check_objects(group: dist.ProcessGroup, ranks: list[int]) -> None:
    gathered: list[object] = [None] * len(ranks)
    dist.all_gather_object(gathered, {"rank": RANK, "text": "x" * RANK}, group=group)
    assert gathered == [{"rank": rank, "text": "x" * rank} for rank in ranks]
    sent = [("from", RANK), None] if ranks[-1] == RANK else [None, None]
    dist.broadcast_object_list(sent, src=ranks[-1], group=group)
    assert sent == [("from", ranks[-1]), None]


def test_ranks_per_node_cuts_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCCOMM_RANKS_PER_NODE", "2")
    with hpccomm.init() as world:
        assert world.topology.nodes == tuple(rank // 2 for rank in range(SIZE))
        assert total() == expected(list(range(SIZE)))


def test_ten_worlds_one_after_the_other() -> None:
    for number in range(10):
        with hpccomm.init(BACKENDS[number % len(BACKENDS)], timeout_s=30) as world:
            assert total() == expected(list(range(SIZE)))
            assert world.exchange.all_gather(RANK) == list(range(SIZE))
        assert not dist.is_initialized()


def test_worlds_on_one_port_one_after_the_other() -> None:
    port = COMM.bcast(free_port() if RANK == 0 else None)
    for backend in ("gloo", "mpi4py", "gloo"):
        with hpccomm.init(backend, port=port, timeout_s=30):
            assert os.environ["MASTER_PORT"] == str(port)
            assert total() == expected(list(range(SIZE)))


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        return int(probe.getsockname()[1])


def test_closed_world_refuses_its_groups() -> None:
    world = hpccomm.init()
    kept = world.group
    with pytest.raises(WorldError, match="is initialised already"):
        hpccomm.init()
    assert total() == expected(list(range(SIZE)))
    shown = str(world)
    world.close()
    world.close()
    assert str(world) == shown
    for name in ("group", "intra_node", "inter_node", "exchange"):
        with pytest.raises(WorldError, match=r"closed(.|\n)*hpccomm\.init"):
            getattr(world, name)
    with pytest.raises((BackendError, ValueError)):
        dist.all_reduce(torch.ones(1), group=kept)


def test_torch_group_of_another_backend_is_in_the_way() -> None:
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    with pytest.raises(WorldError, match="destroy_process_group"):
        hpccomm.init()
    dist.destroy_process_group()
    with hpccomm.init():
        assert total() == expected(list(range(SIZE)))


LAST = SIZE - 1
ALIKE = {
    "malformed ranks per node": ({"HPCCOMM_RANKS_PER_NODE": "two"}, OptionError, "HPCCOMM_RANKS_PER_NODE='two'"),
    "malformed port": ({"HPCCOMM_STORE_PORT": "ssh"}, OptionError, "HPCCOMM_STORE_PORT='ssh'"),
    "malformed quiet time": ({"HPCCOMM_QUIET_S": "0"}, OptionError, "HPCCOMM_QUIET_S='0'"),
    "unknown backend": ({"HPCCOMM_BACKEND": "smoke"}, ExpressionError, "'smoke'"),
    "malformed backend": ({"HPCCOMM_BACKEND": "hierarchical(gloo"}, ExpressionError, "hierarchical"),
    "missing file": ({"HPCCOMM_BACKEND": "@/no/such/file"}, HpccommError, "/no/such/file"),
    "unknown interface": ({"HPCCOMM_INTERFACE": "no-such0"}, NetworkError, "HPCCOMM_INTERFACE"),
    "malformed switch": ({"HPCCOMM_SINGLETON": "maybe"}, LaunchError, "HPCCOMM_SINGLETON"),
}
ON_THE_LAST_RANK = {
    "another backend": ({"HPCCOMM_BACKEND": "gloo"}, OptionError, f"HPCCOMM_BACKEND.*\n.*unset.*'gloo' on rank {LAST}"),
    "ranks per node": ({"HPCCOMM_RANKS_PER_NODE": "1"}, OptionError, "HPCCOMM_RANKS_PER_NODE"),
    "node": ({"HPCCOMM_NODE_ID": "A"}, TopologyError, "HPCCOMM_NODE_ID"),
    "any setting": ({"HPCCOMM_NO_SUCH": "1"}, OptionError, "HPCCOMM_NO_SUCH"),
}


def refused(kind: type[HpccommError], match: str, backend: str | None = None) -> None:
    """See that init raises the same error on all ranks, and that a world starts afterwards."""
    with pytest.raises(kind, match=match) as caught:
        hpccomm.init(backend, timeout_s=30)
    assert len(set(COMM.allgather(str(caught.value)))) == 1
    assert caught.value.everywhere
    assert not dist.is_initialized()


@pytest.mark.parametrize("case", ALIKE)
def test_wrong_setting_is_refused_alike(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    variables, kind, match = ALIKE[case]
    with monkeypatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        refused(kind, match)
    with hpccomm.init():
        assert total() == expected(list(range(SIZE)))


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("case", ON_THE_LAST_RANK)
def test_setting_of_one_rank_is_refused_on_all(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    variables, kind, match = ON_THE_LAST_RANK[case]
    for name, value in variables.items() if RANK == LAST else ():
        monkeypatch.setenv(name, value)
    refused(kind, match)


@pytest.mark.mpi(min_size=2)
def test_argument_of_one_rank_is_refused_on_all() -> None:
    refused(ExpressionError, f"rank {LAST}: no backend is called 'smoke'", "smoke" if RANK == LAST else None)
    refused(OptionError, f"auto on rank 0; gloo on rank {LAST}", "gloo" if RANK == LAST else "auto")


def test_busy_port_is_refused_alike() -> None:
    taken = socket.create_server(("127.0.0.1", 0)) if RANK == 0 else None
    port = COMM.bcast(taken.getsockname()[1] if taken else None)
    with pytest.raises(NetworkError, match=f"port {port}(.|\n)*in use") as caught:
        hpccomm.init(port=port)
    assert caught.value.everywhere
    COMM.Barrier()
    if taken:
        taken.close()


@pytest.mark.mpi(min_size=2)
def test_close_on_one_rank_says_so_at_the_deadline(capfd: pytest.CaptureFixture[str]) -> None:
    world = hpccomm.init("gloo", timeout_s=1)
    if RANK == 0:
        world.close()
    else:
        time.sleep(1.5)
    COMM.Barrier()
    world.close()
    told = "rank 0 closes its world alone: the other ranks did not close theirs within 1 s" in capfd.readouterr().err
    assert told is (RANK == 0)
    with hpccomm.init():
        assert total() == expected(list(range(SIZE)))


def test_exit_that_is_caught_outside_the_world_does_no_harm() -> None:
    with pytest.raises(SystemExit) as caught, hpccomm.init() as world:
        raise SystemExit(3)
    assert caught.value.code == 3
    assert total() == expected(list(range(SIZE)))
    world.close()


def test_successful_exit_closes_the_world() -> None:
    with pytest.raises(SystemExit), hpccomm.init():
        raise SystemExit(0)
    assert not dist.is_initialized()


def test_torch_may_start_hpccomm_itself() -> None:
    from hpccomm.bootstrap.plugin import register

    register()
    port = COMM.bcast(free_port() if RANK == 0 else None)
    for _ in range(2):
        dist.init_process_group("hpccomm", init_method=f"tcp://127.0.0.1:{port}", rank=RANK, world_size=SIZE)
        assert total() == expected(list(range(SIZE)))
        dist.destroy_process_group()
        COMM.Barrier()


@pytest.mark.mpi(min_size=2)
def test_ranks_that_torch_numbers_otherwise_are_refused() -> None:
    from hpccomm.bootstrap.plugin import register

    register()
    port = COMM.bcast(free_port() if RANK == 0 else None)
    with pytest.raises(LaunchError, match=f"rank 0: for MPI this process is rank 0 of {SIZE}"):
        dist.init_process_group("hpccomm", init_method=f"tcp://127.0.0.1:{port}", rank=SIZE - 1 - RANK, world_size=SIZE)
    COMM.Barrier()


@pytest.mark.parametrize("way", ["shrink", "no such way"])
def test_launcher_that_tolerates_no_loss_is_refused_alike(way: str) -> None:
    with pytest.raises(LaunchError if way == "shrink" else OptionError, match="on_lost_rank") as caught:
        hpccomm.init(timeout_s=30, on_lost_rank=way)
    assert caught.value.everywhere


def test_a_world_that_ends_with_its_ranks_does_not_shrink() -> None:
    with hpccomm.init(timeout_s=30) as world:
        for call in (world.shrink, world.agree):
            with pytest.raises(WorldError, match="without the ranks that have died"):
                call()
        assert world.lost == ()


def test_a_world_remembers_what_it_fell_back_from_before_it_was_renewed() -> None:
    with hpccomm.init("failover(faulty(mpi4py, raise, rank=0, call=1), gloo)", timeout_s=30.0) as world:
        for times in (1, 2):
            dist.all_reduce(torch.ones(1))
            assert len(world.fell_back) == times
            world.renew()
            assert len(world.fell_back) == times
