"""Algorithms: proved over sizes, counts, roots and nodes, run on numbers, and as costly as their docstrings say."""

from __future__ import annotations

import math
from collections import defaultdict, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccomm import algorithms
from hpccomm.algorithms import ALGORITHMS, COLLECTIVES, DEFAULTS, Algorithm, find, naive, register, serving
from hpccomm.algorithms.hierarchical import hierarchical
from hpccomm.algorithms.proof import prove
from hpccomm.errors import ScheduleError
from hpccomm.schedule import Step, blocks, contracts, shares, verify

SIZES = (*range(1, 18), 31, 32, 33, 64)
NODES = {
    "one node": [0, 0, 0],
    "one rank each": [0, 1, 2],
    "3+1": [0, 0, 0, 1],
    "1+2+1": [0, 1, 1, 2],
    "mixed 3+2+1": [0, 1, 0, 1, 2, 0],
    "numbered anyhow": [7, 3, 3, 7, 5, 5, 7],
    "5+3+7": [0] * 5 + [1] * 3 + [2] * 7,
    "8 x 4": [rank // 4 for rank in range(32)],
}
SHAPES = [
    ("ring", "ring"),
    ("pairwise", "halving_doubling"),
    ("halving_doubling", "tree"),
    ("tree", "recursive_doubling"),
    ("naive", "naive"),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_schedule_is_proven(name: str, size: int) -> None:
    assert prove(ALGORITHMS[name], size) >= len(ALGORITHMS[name].collectives)


@pytest.mark.parametrize("shape", SHAPES, ids=" in ".join)
@pytest.mark.parametrize("nodes", NODES.values(), ids=NODES)
def test_hierarchies_are_proven_on_uneven_and_mixed_nodes(nodes: list[int], shape: tuple[str, str]) -> None:
    composed = hierarchical(nodes, intra=find(shape[0]), inter=find(shape[1]))
    assert prove(composed, len(nodes))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 40), st.sampled_from(SHAPES))
def test_hierarchies_are_proven_on_any_nodes(nodes: list[int], count: int, shape: tuple[str, str]) -> None:
    prove(hierarchical(nodes, intra=find(shape[0]), inter=find(shape[1])), len(nodes), [count])


def test_three_levels() -> None:
    nodes, switches = [rank // 2 for rank in range(14)], [0, 0, 0, 1, 1, 2, 2]
    outer = hierarchical(switches, intra=find("ring"), inter=find("tree"))
    composed = hierarchical(nodes, intra=find("pairwise"), inter=outer)
    assert composed.name == "hierarchical(pairwise, hierarchical(ring, tree))"
    assert prove(composed, 14)


@pytest.mark.parametrize(
    ("intra", "inter"),
    [("recursive_doubling", "ring"), ("ring", "direct"), ("tree", "direct"), ("ring", "van_de_geijn")],
)
def test_a_pair_that_gives_no_all_reduce_is_refused(intra: str, inter: str) -> None:
    with pytest.raises(ScheduleError, match="reduce_scatter and all_gather, or with reduce and broadcast"):
        hierarchical([0, 0, 1], intra=find(intra), inter=find(inter))


def on_numbers(function, contract, inputs, length):
    """Carry a schedule out on lists of numbers, every send at once; give every rank's buffer of so many elements."""
    buffers = [list(values) + [math.nan] * (length - len(values)) for values in inputs]
    queues, waiting = defaultdict(deque), set(range(contract.size))
    players = [function(rank, contract.size, *contract.arguments[rank]) for rank in range(contract.size)]
    current = [None] * contract.size
    while waiting:
        for rank in list(waiting):
            step = current[rank] or next(players[rank], None)
            if step is None:
                waiting.discard(rank)
                continue
            if current[rank] is None and step.send[0] < step.send[1]:
                queues[rank, step.dest].append(buffers[rank][slice(*step.send)])
            current[rank] = step
            if step.recv[0] < step.recv[1]:
                if not queues[step.source, rank]:
                    continue
                got, place = queues[step.source, rank].popleft(), slice(*step.recv)
                own = buffers[rank][place]
                buffers[rank][place] = [a + b for a, b in zip(own, got, strict=True)] if step.reduce else got
            current[rank] = None
    return buffers


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("name", [name for name, a in ALGORITHMS.items() if a.all_reduce and name != "direct"])
def test_all_reduce_of_numbers(name: str, size: int) -> None:
    inputs = [[10 * rank + i for i in range(11)] for rank in range(size)]
    result = on_numbers(ALGORITHMS[name].all_reduce, contracts.all_reduce(size, 11), inputs, 11)
    assert result == [[10 * sum(range(size)) + i * size for i in range(11)]] * size


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("name", ["pairwise", "ring", "halving_doubling"])
def test_reduce_scatter_and_all_gather_of_numbers(name: str, size: int) -> None:
    counts = [(3 * rank + 1) % 4 for rank in range(size)]
    total, places = sum(counts), blocks(counts)
    inputs = [[100 * rank + i for i in range(total)] for rank in range(size)]
    result = on_numbers(ALGORITHMS[name].reduce_scatter, contracts.reduce_scatter(counts), inputs, total)
    for rank, (start, stop) in enumerate(places):
        assert result[rank][start:stop] == [100 * sum(range(size)) + i * size for i in range(start, stop)]
    own = [[math.nan] * start + [100 * rank] * (stop - start) for rank, (start, stop) in enumerate(places)]
    gathered = on_numbers(ALGORITHMS[name].all_gather, contracts.all_gather(counts), own, total)
    assert gathered == [[100 * rank for rank, count in enumerate(counts) for _ in range(count)]] * size


@pytest.mark.parametrize("root", range(6))
@pytest.mark.parametrize("name", ["tree", "naive"])
def test_gather_and_scatter_of_numbers_keep_rank_order_for_every_root(name: str, root: int) -> None:
    counts = [2, 0, 1, 3, 1, 2]
    places, whole = blocks(counts), [10 * rank for rank, count in enumerate(counts) for _ in range(count)]
    own = [[math.nan] * start + [10 * rank] * (stop - start) for rank, (start, stop) in enumerate(places)]
    assert on_numbers(ALGORITHMS[name].gather, contracts.gather(counts, root), own, len(whole))[root] == whole
    inputs = [whole if rank == root else [] for rank in range(6)]
    result = on_numbers(ALGORITHMS[name].scatter, contracts.scatter(counts, root), inputs, len(whole))
    assert [result[rank][slice(*places[rank])] for rank in range(6)] == [
        [10 * rank] * n for rank, n in enumerate(counts)
    ]


def sent(function, size, *arguments):
    """Count the elements that each rank sends to others."""
    steps = [list(function(rank, size, *arguments)) for rank in range(size)]
    return [sum(s.send[1] - s.send[0] for s in own if s.dest != rank) for rank, own in enumerate(steps)]


@pytest.mark.parametrize("size", [2, 3, 4, 8, 12])
def test_elements_sent_by_a_rank(size: int) -> None:
    count, log = 24 * size, math.ceil(math.log2(size))
    assert sent(find("ring").all_reduce, size, count) == [2 * (size - 1) * 24] * size
    assert sent(find("pairwise").all_reduce, size, count) == [2 * (size - 1) * 24] * size
    assert sent(find("direct").all_reduce, size, count) == [(size - 1) * count] * size
    assert sent(find("naive").all_reduce, size, count) == [(size - 1) * count] + [count] * (size - 1)
    assert sent(find("tree").reduce, size, count, 0) == [0] + [count] * (size - 1)
    assert sent(find("tree").broadcast, size, count, 0)[0] == log * count
    assert sent(find("tree").scatter, size, shares(size, count), 0)[0] == (size - 1) * 24
    assert max(sent(find("van_de_geijn").broadcast, size, count, 0)) == 2 * (size - 1) * 24


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_elements_sent_by_a_rank_of_a_power_of_two(size: int) -> None:
    count, log = 5 * size, int(math.log2(size))
    assert sent(find("halving_doubling").all_reduce, size, count) == [2 * (size - 1) * 5] * size
    assert sent(find("halving_doubling").reduce_scatter, size, [5] * size) == [(size - 1) * 5] * size
    assert sent(find("recursive_doubling").all_reduce, size, count) == [log * count] * size
    assert len(list(find("halving_doubling").all_reduce(0, size, count))) == 2 * log


def test_elements_that_leave_a_node() -> None:
    nodes, count = [0] * 4 + [1] * 4 + [2] * 5, 2400
    composed = hierarchical(nodes, intra=find("ring"), inter=find("ring"))
    leaving = [0, 0, 0]
    for rank in range(13):
        for step in composed.all_reduce(rank, 13, count):
            if step.dest >= 0 and nodes[step.dest] != nodes[rank]:
                leaving[nodes[rank]] += step.send[1] - step.send[0]
    assert leaving == [2 * 2 / 3 * count] * 3


def test_direct_needs_its_separate_input() -> None:
    verify(find("direct").all_reduce, contracts.all_reduce(3, 4), separate_input=True)
    with pytest.raises(ScheduleError):
        verify(find("direct").all_reduce, contracts.all_reduce(3, 4))


def test_each_collective_has_a_default_that_serves_it() -> None:
    assert tuple(DEFAULTS) == COLLECTIVES
    for collective, default in DEFAULTS.items():
        assert collective in find(default).collectives
        for name, algorithm in ALGORITHMS.items():
            expected = name if collective in algorithm.collectives else default
            assert serving(name, collective).name == expected


@pytest.mark.parametrize(
    ("call", "found", "remedy"),
    [
        (lambda: find("rings"), "no such algorithm", "naive, direct, pairwise"),
        (lambda: serving("ring", "allreduce"), "no such collective", "all_reduce, reduce_scatter"),
        (lambda: register(Algorithm("ring")), "the name is taken", "another name"),
        (lambda: register(Algorithm("new", separate_input=frozenset({"reduce"}))), "reduce, which it does not", "have"),
    ],
)
def test_what_is_unknown_is_refused(call, found: str, remedy: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        call()
    assert found in caught.value.found
    assert remedy in caught.value.remedy


def toy(rank: int, size: int, count: int):
    """Pass the sum up the line of ranks and back."""
    up = [Step(source=rank - 1, recv=(0, count), reduce=True)] if rank else []
    up += [Step(dest=rank + 1, send=(0, count))] if rank + 1 < size else []
    yield from up
    yield from (Step(s.source, s.recv, s.dest, s.send) for s in reversed(up))


def test_a_new_algorithm_is_one_function_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithms, "ALGORITHMS", dict(ALGORITHMS))
    register(Algorithm("toy", all_reduce=toy))
    assert all(prove(find("toy"), size) for size in range(1, 9))
    assert serving("toy", "all_reduce").all_reduce is toy
    assert serving("toy", "broadcast") is find("tree")


def test_a_wrong_algorithm_is_not_proven() -> None:
    wrong = Algorithm("wrong", reduce=lambda rank, size, count, root: naive.reduce(rank, size, count, 0))
    with pytest.raises(ScheduleError, match="verify reduce of 1 elements on 4 ranks with root 2"):
        prove(wrong, 4)
