"""From a comparison to lines of text; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from hpccomm.bench.compare import Comparison, Pair, Recorded
from hpccomm.bench.files import Result
from hpccomm.bench.tables import described
from hpccomm.bench.text import note, strong
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

_SAME = ("launcher", "mpi", "torch", "python", "hpccomm", "topology", "placement", "threads", "oversubscribed")
_TIME, _RATIO = 8, 6
_SIZES = 8  # more sizes than these are counted


def lines(found: Comparison) -> list[str]:
    """Give the whole comparison."""
    old, new = found.old, found.new
    shown = ["", strong(f"{new.name} compared with {old.name} of {old.environment.get('date', 'unknown date')}")]
    shown += [line for text in differences(old, new) for line in note(text)]
    for title, pairs in groupby(found.pairs, key=lambda pair: _title(pair.row)):
        shown += ["", title, *_table(list(pairs))]
    shown.append("")
    for name, rows in ((old.name, found.only_old), (new.name, found.only_new)):
        shown += [line for text in _alone(rows) for line in note(f"only in {name}: {text}", "")]
    return [*shown, strong(verdict(found))]


def differences(old: Recorded, new: Recorded) -> list[str]:
    """Say what else differs between the runs."""
    pairs = [(name, old.environment.get(name), new.environment.get(name)) for name in _SAME]
    return [f"differs: {name}: {before}, now {now}" for name, before, now in pairs if before != now]


def verdict(found: Comparison) -> str:
    """Say how many rows are slower than allowed, or failed."""
    if not found.pairs:
        return "no row has a partner in the other run"
    marks = [pair.mark for pair in found.pairs]
    text = f"{marks.count('SLOWER')} of {len(marks)} rows slower than {1 + found.tolerance:g} x old"
    failed = marks.count("FAILED")
    return f"{text}, {failed} without a result now" if failed else text


def _table(pairs: Sequence[Pair]) -> Iterator[str]:
    sizes = [format_bytes(pair.row["size_bytes"]) for pair in pairs]
    width = max(map(len, ("size", *sizes)))
    names = max(map(len, ("backend", *(pair.row["backend"] for pair in pairs))))
    yield f"{'size':>{width}} {'backend':<{names}} {'old_us':>{_TIME}} {'new_us':>{_TIME}} {'ratio':>{_RATIO}}"
    yield f"{'-' * width} {'-' * names} {'-' * _TIME} {'-' * _TIME} {'-' * _RATIO}"
    for pair, size in zip(pairs, sizes, strict=True):
        old, new = (f"{_time(time):>{_TIME}}" for time in (pair.old_us, pair.new_us))
        ratio = f"{pair.ratio:.2f}" if pair.ratio else "-"
        line = f"{size:>{width}} {pair.row['backend']:<{names}} {old} {new} {ratio:>{_RATIO}}"
        yield strong(f"{line} {pair.mark}") if pair.mark else line


def _alone(rows: Sequence[Result]) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for one in rows:
        found.setdefault(f"{_title(one)}: {one['backend']}", []).append(format_bytes(one["size_bytes"]))
    for name, sizes in found.items():
        yield f"{name} at {', '.join(sizes) if len(sizes) <= _SIZES else f'{len(sizes)} sizes'}"


def _title(row: Result) -> str:
    return f"{described(row)}, {count(row['ranks'], 'rank')}"


def _time(time_us: float | None) -> str:
    return "-" if time_us is None else format_us(time_us)
