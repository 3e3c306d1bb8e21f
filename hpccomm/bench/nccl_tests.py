"""Keys of nccl-tests that the JSON file has beside its own, so that programs that read its files read ours. Pure.

Keys as in nccl-tests' src/util.cu. A row of it is one size of one collective in both places; ours is also
of one backend, and of one place: the other one is null, as theirs where it was not run. Times are our medians.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpccomm.bench.collectives import COLLECTIVES, IN

_TYPES = {"float32": ("float", 4), "float64": ("double", 8), "float16": ("half", 2), "bfloat16": ("bfloat16", 2),
          "int8": ("int8", 1), "uint8": ("uint8", 1), "int16": ("int16", 2), "int32": ("int32", 4),
          "int64": ("int64", 8)}  # fmt: skip
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_PLACES = ("out_of_place", "in_place")


def entries(result: Mapping[str, Any]) -> dict[str, Any]:
    """Give the keys of a result; none for a collective without data."""
    if result["place"] is None:
        return {}
    name, itemsize = _TYPES[result["dtype"]]
    made = COLLECTIVES.get(result["collective"])
    parts = result["ranks"] if made is not None and made.has_shares else 1
    measured = None
    if result["time_us_median"] is not None:
        rates = {"alg_bw": result["algbw_GBps"], "bus_bw": result["busbw_GBps"]}
        measured = {"time": result["time_us_median"], **rates, "nwrong": result["wrong"]}
    places = dict.fromkeys(_PLACES) | {_PLACES[result["place"] == IN]: measured}
    return {
        "size": result["size_bytes"],
        "count": result["size_bytes"] // itemsize // parts,
        "type": name,
        "redop": result["op"] or "none",
        "root": "0" if result["collective"] in _ROOTED else "-1",
        **places,
        "actual_iterations": result["iterations"],
    }


def totals(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give the keys of a whole run; none without a result."""
    if not results:
        return {}
    wrong = sum(bool(one["wrong"]) for one in results)
    rates = [one["busbw_GBps"] for one in results if one["busbw_GBps"] is not None]
    return {
        "out_of_bounds": {"count": wrong, "okay": wrong == 0},
        "average_bus_bandwidth": {"bandwidth": sum(rates) / len(rates) if rates else 0.0, "okay": "unchecked"},
    }
