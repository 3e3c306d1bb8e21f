"""The tables of a run, from its options: what each measures, and at which sizes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpccomm.bench.collectives import COLLECTIVES, OUT, Collective
from hpccomm.bench.options import Options

WHAT = ("collective", "place", "dtype", "op", "ranks")
"""What the results of one table share."""


@dataclass(frozen=True)
class Table:
    """One table of the report: a collective in one form, over all sizes and backends.

    Attributes:
        collective: The collective.
        ranks: Number of ranks.
        dtype: Torch's name of the dtype.
        op: The operator; None where nothing is reduced.
        place: In or out of place; None for a collective without data.
    """

    collective: Collective
    ranks: int
    dtype: str
    op: str | None = None
    place: str | None = None

    @property
    def what(self) -> dict[str, object]:
        """The values of `WHAT`."""
        dtype = self.dtype if self.collective.has_data else None
        values = (self.collective.name, self.place, dtype, self.op, self.ranks)
        return dict(zip(WHAT, values, strict=True))

    @property
    def factor(self) -> float | None:
        """The busbw factor; None where there is no bus bandwidth."""
        return self.collective.bus_factor(self.ranks)

    @property
    def title(self) -> str:
        """The table in words."""
        copied = self.place == OUT and self.collective.copies
        return described(self.what) + " (a copy into another tensor, then the call)" * copied


def described(what: Mapping[str, Any]) -> str:
    """Say in words what a table measured.

    >>> described({"collective": "all_reduce", "op": "sum", "dtype": "float32", "place": "out"})
    'all_reduce sum of float32, out of place'
    """
    if what["place"] is None:
        return str(what["collective"])
    words = " ".join(filter(None, (what["collective"], what["op"], "of", what["dtype"])))
    return f"{words}, {'in' if what['place'] == 'in' else 'out of'} place"


def tables(options: Options, ranks: int) -> list[Table]:
    """Give the tables in the order of the collectives, each in the places that were asked for and that it has."""
    found = []
    for collective in (COLLECTIVES[name] for name in options.collectives):
        op = options.op if collective.reduces else None
        places = _places(collective, options.place) if collective.has_data else [None]
        found += [Table(collective, ranks, options.dtype, op, place) for place in places]
    return found


def _places(collective: Collective, asked: str | None) -> Sequence[str | None]:
    if asked is None:
        return collective.places[:1]
    return [place for place in collective.places if asked in (place, "both")]


def sizes(table: Table, options: Options, *, itemsize: int) -> list[int]:
    """Give the sizes to measure in bytes, ascending: whole elements, and equal shares where a rank has a share.

    Args:
        table: The table; one of a collective without data has the size 0 alone.
        options: First and last size and the factor between.
        itemsize: Bytes of an element.
    """
    if not table.collective.has_data:
        return [0]
    unit = itemsize * table.ranks if table.collective.has_shares else itemsize
    found, size = [], options.min_bytes
    while size <= options.max_bytes:
        found.append(max(1, size // unit) * unit)
        size *= options.step_factor
    return list(dict.fromkeys(found))
