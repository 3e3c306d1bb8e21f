"""What the figures mean, in words: for the lines above a table and for the JSON file alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from hpccomm.bench.collectives import Collective

TIME = "microseconds of one call: maximum over ranks, then median of the repetitions"
SKEW = "microseconds: maximum minus minimum over ranks of the time of a call, then median of the repetitions"


def busbw(collective: Collective, ranks: int) -> str:
    """Say what the bus bandwidth is, with the factor for so many ranks."""
    factor = collective.bus_factor(ranks)
    if collective.factor is None:
        return "none without data"
    if factor is None:
        return "none with one rank"
    formula = f"GB/s = {_times(collective.formula)}size / time"
    return f"{formula}; n = {ranks} ranks: {factor:.4g} x size / time" if "n" in collective.formula else formula


def wire(collective: Collective) -> str:
    """Say how many bytes leave a node of a hierarchy."""
    if collective.factor is None:
        return "none without data"
    if collective.to_next:
        return "bytes that leave a node = size x its ranks whose next one is on another node; GB/s = these / time"
    factor = _times(collective.formula.replace("n", "k"))
    nodes = "k nodes; " * ("k" in factor)
    return f"{nodes}bytes that leave a node = {factor}size as it travels; GB/s = these / time"


def definitions(collectives: Iterable[Collective], ranks: int) -> dict[str, object]:
    """Give all definitions for these collectives."""
    found = list(collectives)
    return {
        "size": "bytes of the larger of a rank's tensors; KiB = 1024 B",
        "time": TIME,
        "p95, p99": "the smallest time that 95 % (99 %) of the repetitions do not exceed",
        "skew": SKEW,
        "algbw": "GB/s (10^9 bytes a second) = size / time",
        "busbw": {one.name: busbw(one, ranks) for one in found},
        "wire": {one.name: wire(one) for one in found},
        "wrong": "elements that are not what they must be, over all ranks, before and after the timed calls; of a "
        "barrier, the calls that a rank left before another one of its host had come",
    }


def _times(formula: str) -> str:
    return "" if formula == "1" else f"{formula} x "
