"""The proof that all ranks' schedules together do what their collective promises; no MPI, no tensors, one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hpccomm.errors import ScheduleError
from hpccomm.schedule.contracts import Contract, Wanted
from hpccomm.schedule.faults import Fault, of_ranks
from hpccomm.schedule.memory import UNDEFINED, Value, aligned
from hpccomm.schedule.run import Player, Run, overwriting
from hpccomm.schedule.step import Step


def verify(schedule: Callable[..., Iterable[Step]], contract: Contract, *, separate_input: bool = False) -> None:
    """Prove a schedule for one number of ranks and elements.

    Proved are: every wanted element has each rank's contribution exactly once, in its place, and for an all-reduce
    the same order of additions on all ranks; nobody waits for ever; every message is received, by an interval of its
    length; all intervals lie inside the buffers and all peers exist.

    Args:
        schedule: Called with rank, size and the contract's arguments of that rank.
        contract: The collective, from `contracts`.
        separate_input: Whether sends read an input that receives do not touch.

    Raises:
        ScheduleError: A fault, by its name, with rank and step (counted from 0).
    """
    run = Run(schedule, contract, separate_input)
    run.execute()
    _check_results(run, contract)


@dataclass(frozen=True, slots=True)
class _Miss:
    """An element that does not hold what is wanted."""

    player: Player
    element: int
    value: Value
    wanted: Wanted


def _check_results(run: Run, contract: Contract) -> None:
    misses = list(_misses(run, contract))
    if misses:
        stale = (_stale(run, miss) for miss in misses)
        raise next(filter(None, stale), None) or _missing(run, misses[0])
    if contract.same_bits:
        _check_bits(run)
    if contract.synchronises:
        everyone = (1 << contract.size) - 1
        for player in run.players:
            if player.heard != everyone:
                unheard = of_ranks(everyone & ~player.heard)
                raise Fault.LATE.error(run.asked, f"rank {player.rank} ends whether or not {unheard} have begun")


def _misses(run: Run, contract: Contract) -> Iterator[_Miss]:
    ranks = run.sums.ranks
    for player, wanted in zip(run.players, contract.wanted, strict=True):
        for want in wanted:
            for at, value in player.memory.read(want.start, want.stop) if want.start < want.stop else ():
                if ranks[value[0]] != want.ranks or value[1] != want.shift:
                    yield _Miss(player, at, value, want)


def _stale(run: Run, miss: _Miss) -> ScheduleError | None:
    """Say that a rank passed an element on too early, if it holds more contributions to it in the end."""
    stored = overwriting(miss.player, miss.element, miss.player.number + 1)
    if stored is None:
        return None
    _, moved, message = stored
    sender, origin = run.players[message.source], miss.element - moved
    held = sender.sends_from.read(origin, origin + 1)[0][1]
    late = run.sums.ranks[held[0]] & miss.wanted.ranks & ~run.sums.ranks[miss.value[0]]
    if not late:
        return None
    text = f"rank {sender.rank}, step {message.step}: sends rank {message.dest} element {origin}"
    return Fault.STALE.error(run.asked, f"{text} before it has the contribution of {of_ranks(late)}")


def _missing(run: Run, miss: _Miss) -> ScheduleError:
    player, wanted = miss.player, miss.wanted
    place = f"rank {player.rank}, after its {player.number + 1} steps: element {miss.element}"
    if miss.value == UNDEFINED:
        return Fault.MISSING.error(run.asked, f"{place} never gets what {of_ranks(wanted.ranks)} must send")
    ranks = run.sums.ranks[miss.value[0]]
    if wanted.ranks & ~ranks and not ranks & ~wanted.ranks:
        return Fault.MISSING.error(run.asked, f"{place} lacks {of_ranks(wanted.ranks & ~ranks)}")
    held = f"holds element {miss.element + miss.value[1]} of {of_ranks(ranks)}"
    return Fault.MISPLACED.error(
        run.asked,
        f"{place} {held} instead of element {miss.element + wanted.shift} of {of_ranks(wanted.ranks)}",
    )


def _check_bits(run: Run) -> None:
    first = run.players[0].memory.merged()
    for player in run.players[1:]:
        other = player.memory.merged()
        if other == first:
            continue
        differing = ((at, one, two) for at, one, two in aligned(first, other) if one != two)
        at, one, two = next(differing)
        sums = f"{run.sums.text(one[0])} on rank 0, {run.sums.text(two[0])} on rank {player.rank}"
        raise Fault.BITS.error(run.asked, f"element {at} is added as {sums}")
