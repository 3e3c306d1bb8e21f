"""Schedules: cutting, embedding, and a verifier that accepts what is right and names what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccomm.algorithms import ALGORITHMS
from hpccomm.errors import ScheduleError
from hpccomm.schedule import Step, backwards, blocks, chunk, chunks, contracts, embed, shares, verify
from hpccomm.schedule.faults import Fault
from hpccomm.schedule.memory import Memory, Sums

W = (0, 4)
sizes, counts = st.integers(1, 40), st.integers(0, 300)


def scripted(*steps):
    """Make a schedule of each rank's steps, written down."""
    return lambda rank, size, *_: iter(steps[rank])


@given(sizes, counts)
def test_chunks_tile_the_buffer_and_differ_by_one_at_most(size: int, count: int) -> None:
    cut = chunks(size, count)
    assert [start for start, _ in cut] == [0, *(stop for _, stop in cut[:-1])]
    assert cut[-1][1] == count
    lengths = [stop - start for start, stop in cut]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1
    assert shares(size, count) == lengths
    assert blocks(lengths) == cut == [chunk(index, size, count) for index in range(size)]


@given(st.lists(st.integers(0, 9), max_size=9))
def test_blocks_lie_one_after_the_other(lengths: list[int]) -> None:
    assert blocks(lengths) == [(sum(lengths[:i]), sum(lengths[: i + 1])) for i in range(len(lengths))]


def test_embed_relabels_ranks_and_moves_intervals() -> None:
    steps = [Step(1, (0, 2), 0, (2, 3), reduce=True), Step(dest=0, send=(1, 3)), Step(source=1, recv=(0, 1))]
    assert list(embed(steps, [7, 4], 10)) == [
        Step(4, (10, 12), 7, (12, 13), reduce=True),
        Step(7, (11, 13), -1, (10, 10)),
        Step(-1, (10, 10), 4, (10, 11)),
    ]


def test_backwards_turns_messages_round_and_adds_nothing() -> None:
    steps = [Step(1, (0, 2), 3, (2, 3), reduce=True), Step(dest=0, send=(1, 3))]
    assert list(backwards(steps)) == [Step(source=0, recv=(1, 3)), Step(3, (2, 3), 1, (0, 2))]
    assert list(backwards(backwards(steps))) == [replace(step, reduce=False) for step in steps]


@given(st.data(), st.integers(1, 30))
def test_memory_of_pieces_equals_a_list_of_elements(data: st.DataObject, length: int) -> None:
    held = data.draw(st.tuples(st.integers(0, length), st.integers(0, length)).map(lambda pair: tuple(sorted(pair))))
    memory, model = Memory(length, held, 1), [(0, 0)] * length
    model[slice(*held)] = [(1, 0)] * (held[1] - held[0])
    for number in range(2, data.draw(st.integers(2, 12))):
        start = data.draw(st.integers(0, length - 1))
        stop = data.draw(st.integers(start + 1, length))
        inner = data.draw(st.sets(st.integers(start, stop - 1), max_size=3)) | {start}
        pieces = [(at, (number + i, i)) for i, at in enumerate(sorted(inner))]
        memory.write(start, stop, pieces)
        for at, value in pieces:
            model[at:stop] = [value] * (stop - at)
        assert spread(memory.read(start, stop), stop) == model[start:stop]
        assert spread(memory.read(0, length), length) == spread(memory.merged(), length) == model
    assert all(one != two for (_, one), (_, two) in pairwise(memory.merged()))


def spread(pieces, stop):
    ends = [at for at, _ in pieces[1:]] + [stop]
    return [value for (at, value), end in zip(pieces, ends, strict=True) for _ in range(at, end)]


def test_sums_are_equal_exactly_if_their_bits_must_be() -> None:
    sums = Sums(3)
    left = sums.add(sums.add(1, 2), 3)
    assert left == sums.add(3, sums.add(2, 1)) != sums.add(1, sums.add(2, 3))
    assert sums.text(left) == "(2+(0+1))"
    assert sums.ranks[left] == 0b111
    assert sums.add(left, 2) == sums.add(0, 1) == 0


def exchange(rank: int, size: int, count: int) -> Iterator[Step]:
    yield Step(1 - rank, (0, count), 1 - rank, (0, count), reduce=True)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_right_schedule_passes(count: int) -> None:
    verify(exchange, contracts.all_reduce(2, count))


def test_messages_of_two_ranks_keep_their_order_and_sends_may_end_late() -> None:
    sends = [Step(dest=1, send=(0, 1)), Step(dest=1, send=(1, 4))]
    receives = [Step(source=0, recv=(0, 1)), Step(source=0, recv=(1, 4))]
    verify(scripted(sends, receives), contracts.broadcast(2, 4, 0))
    with pytest.raises(ScheduleError, match="size mismatch"):
        verify(scripted(sends, receives[::-1]), contracts.broadcast(2, 4, 0))


def test_local_steps_copy_and_add() -> None:
    copies = scripted([Step(0, W, 0, W)])
    verify(copies, contracts.all_reduce(1, 4), separate_input=True)
    verify(copies, contracts.all_to_all([[4]]), separate_input=True)
    with pytest.raises(ScheduleError, match="double count: rank 0, step 1"):
        twice = scripted([Step(0, W, 0, W), Step(0, W, 0, W, reduce=True)])
        verify(twice, contracts.all_reduce(1, 4), separate_input=True)


TO_0, TO_1, FROM_0, FROM_1 = Step(dest=0, send=W), Step(dest=1, send=W), Step(source=0, recv=W), Step(source=1, recv=W)
ADD_0, ADD_1, ADD_2 = (Step(source=rank, recv=W, reduce=True) for rank in range(3))
TO_2, FROM_2 = Step(dest=2, send=W), Step(source=2, recv=W)
TWO, THREE = contracts.all_reduce(2, 4), contracts.all_reduce(3, 4)
LOW_STAYS, HIGH_STAYS = Step(0, (0, 2), 0, (0, 2)), Step(1, (2, 4), 1, (2, 4))
SUM_OF_TWO = Step(1, W, 1, W, reduce=True), Step(0, W, 0, W, reduce=True)
BROKEN = {
    "exchanged twice": (
        [[SUM_OF_TWO[0]] * 2, [SUM_OF_TWO[1]] * 2],
        TWO,
        r"double count: rank \d, step 1: adds ranks 0, 1 of rank \d \(its step 1\) to ranks 0, 1, at element 0",
    ),
    "both receive first": (
        [[ADD_1, TO_1], [ADD_0, TO_0]],
        TWO,
        "deadlock: rank 0, step 0 waits for a message of rank 1; rank 1, step 0 waits for a message of rank 0",
    ),
    "in a circle of three": (
        [[ADD_2, TO_1], [ADD_0, TO_2], [ADD_1, TO_0]],
        THREE,
        "rank 0, step 0 waits for a message of rank 2; rank 1, step 0 .* rank 0; rank 2, step 0 .* rank 1",
    ),
    "stored where it is being sent from": (
        [[Step(1, W, 1, W)], [Step(0, W, 0, W)]],
        TWO,
        r"deadlock: rank 0, step 0 waits for rank 1 to receive elements \[0, 4\) that it sent at step 0; rank 1",
    ),
    "a receive too many": (
        [[ADD_1], []],
        TWO,
        "deadlock: rank 0, step 0 waits for a message of rank 1, which has ended",
    ),
    "a send too many": (
        [[SUM_OF_TWO[0], TO_1], [SUM_OF_TWO[1]]],
        TWO,
        r"unreceived: rank 0, step 1: elements \[0, 4\) for rank 1",
    ),
    "one rank left out of the sum": (
        [[ADD_1, TO_1, TO_2], [TO_0, FROM_0], [FROM_0]],
        THREE,
        "missing contribution: rank 0, after its 3 steps: element 0 lacks rank 2",
    ),
    "one rank left out of the broadcast": (
        [[TO_1], [FROM_0], []],
        contracts.broadcast(3, 4, 0),
        "missing contribution: rank 2, after its 0 steps: element 0 never gets what rank 0 must send",
    ),
    "passed on before it is complete": (
        [[TO_1, ADD_1], [TO_0, FROM_0]],
        TWO,
        "stale data sent: rank 0, step 0: sends rank 1 element 0 before it has the contribution of rank 1",
    ),
    "sent before it is received": (
        [[Step(1, (2, 4), 1, (2, 4))], [Step(0, (2, 4), 0, (0, 2))]],
        contracts.all_gather([2, 2]),
        "stale data sent: rank 0, step 0: sends rank 1 element 2, which it does not hold yet",
    ),
    "overwritten before it is sent": (
        [[TO_1, ADD_1], [FROM_0, TO_0]],
        contracts.reduce(2, 4, 0),
        "stale data sent: rank 1, step 1: sends element 0, which its step 0 overwrote with what rank 0 sent",
    ),
    "sent past the end": ([[Step(dest=1, send=(2, 5))], []], TWO, r"out of range: rank 0, step 0: elements \[2, 5\)"),
    "received before the start": ([[Step(source=1, recv=(-1, 2))], []], TWO, r"out of range: .*elements \[-1, 2\)"),
    "stop before start": ([[Step(dest=1, send=(3, 2))], []], TWO, r"out of range: .*elements \[3, 2\)"),
    "sent to nobody": (
        [[Step(send=W)], []],
        TWO,
        r"no such peer: rank 0, step 0: elements \[0, 4\) to or from rank -1",
    ),
    "sent to a rank too high": ([[TO_2], []], TWO, "no such peer: .* rank 2"),
    "sent to itself, not received": ([[TO_0], []], TWO, "no such peer: rank 0, step 0"),
    "lengths differ": (
        [[TO_1], [Step(source=0, recv=(0, 3))]],
        contracts.broadcast(2, 4, 0),
        "size mismatch: rank 1, step 0: receives 3 elements, but gets 4 elements that rank 0 sent at step 0",
    ),
    "added to nothing": (
        [[TO_1], [ADD_0]],
        contracts.broadcast(2, 4, 0),
        "undefined operand: rank 1, step 0: adds to element 0, which it does not hold yet",
    ),
    "halves swapped": (
        [
            [Step(dest=1, send=(0, 2)), Step(dest=1, send=(2, 4))],
            [Step(source=0, recv=(2, 4)), Step(source=0, recv=(0, 2))],
        ],
        contracts.broadcast(2, 4, 0),
        "wrong place: rank 1, .* element 0 holds element 2 of rank 0 instead of element 0 of rank 0",
    ),
    "the block of another rank": (
        [[LOW_STAYS, Step(1, (2, 4), 1, (2, 4))], [HIGH_STAYS, Step(0, (2, 4), 0, (0, 2))]],
        contracts.all_to_all([[2, 2], [2, 2]]),
        "wrong place: rank 0, .* element 2 holds element 2 of rank 1 instead of element 0 of rank 1",
    ),
    "added to other elements": (
        [[Step(source=1, recv=(0, 2), reduce=True)], [Step(dest=0, send=(2, 4))]],
        TWO,
        r"wrong place: rank 0, step 0: adds element 2 of rank 1 \(its step 0\) to element 0",
    ),
    "each in an order of its own": (
        [
            [TO_1, TO_2, Step(0, W, 0, W), ADD_1, ADD_2],
            [TO_2, TO_0, Step(1, W, 1, W), ADD_2, ADD_0],
            [TO_0, TO_1, Step(2, W, 2, W), ADD_0, ADD_1],
        ],
        THREE,
        r"bits differ: element 0 is added as \(2\+\(0\+1\)\) on rank 0, \(0\+\(1\+2\)\) on rank 1",
    ),
    "a barrier of one round": (
        [[Step(1, (0, 1), 2, (0, 1))], [Step(2, (0, 1), 0, (0, 1))], [Step(0, (0, 1), 1, (0, 1))]],
        contracts.barrier(3),
        "not synchronised: rank 0 ends whether or not rank 1 have begun",
    ),
}
SEPARATE = {"each in an order of its own", "a barrier of one round", "the block of another rank"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_named_with_rank_and_step(name: str) -> None:
    steps, contract, expected = BROKEN[name]
    with pytest.raises(ScheduleError) as caught:
        verify(scripted(*steps), contract, separate_input=name in SEPARATE)
    assert re.search(expected, caught.value.found), caught.value.found
    assert caught.value.asked == f"verify {contract}"


def test_every_fault_is_among_the_broken() -> None:
    texts = " ".join(found for _, _, found in BROKEN.values())
    assert [fault.title for fault in Fault if f"{fault.title}: " not in texts] == []


def test_long_lists_are_cut() -> None:
    stuck = scripted(*[[Step(source=(rank + 1) % 20, recv=W)] for rank in range(20)])
    with pytest.raises(ScheduleError, match="rank 7, step 0 waits for a message of rank 8; and 12 more"):
        verify(stuck, contracts.all_reduce(20, 4))
    lonely = scripted([Step(dest=rank, send=W) for rank in range(1, 20)], *[[FROM_0]] * 19)
    with pytest.raises(ScheduleError, match=r"lacks ranks 1, 2, 3, 4, 5, 6, \.\.\., 19"):
        verify(lonely, contracts.all_reduce(20, 4))


def mutated(step: Step, how: str) -> list[Step]:
    if how == "drop":
        return []
    if how == "repeat":
        return [step, step]
    if how == "flip":
        return [replace(step, reduce=not step.reduce)]
    (start, stop), name = (step.recv, "recv") if step.source >= 0 else (step.send, "send")
    return [replace(step, **{name: (start + 1, stop) if how == "shorten" else (start + 1, stop + 1)})]


@settings(max_examples=300)
@given(
    st.sampled_from([a for a in ALGORITHMS.values() if a.all_reduce and not a.separate_input - {"all_to_all"}]),
    st.integers(2, 9),
    st.sampled_from(["drop", "repeat", "flip", "shorten", "move"]),
    st.data(),
)
def test_a_schedule_with_one_step_spoilt_never_passes(algorithm, size: int, how: str, data: st.DataObject) -> None:
    count = 2 * size
    steps = [list(algorithm.all_reduce(rank, size, count)) for rank in range(size)]
    rank = data.draw(st.integers(0, size - 1))
    place = data.draw(st.integers(0, len(steps[rank]) - 1))
    step = steps[rank][place]
    if how == "flip" and step.source < 0:
        how = "drop"
    steps[rank][place : place + 1] = mutated(step, how)
    with pytest.raises(ScheduleError):
        verify(scripted(*steps), contracts.all_reduce(size, count))


def test_a_contract_says_what_it_is() -> None:
    assert str(contracts.all_reduce(3, 5)) == "all_reduce of 5 elements on 3 ranks"
    assert str(contracts.scatter([1, 0, 2], 2)) == "scatter of 3 elements on 3 ranks with root 2"
    assert str(contracts.all_to_all([[1, 2], [3, 4]])) == "all_to_all of 7 elements on 2 ranks"
