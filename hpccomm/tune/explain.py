"""What a table's measurements say of training: backend and size of the pieces for DDP, FSDP, TP and PP. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpccomm.errors import OptionError
from hpccomm.topology.grouping import count
from hpccomm.tune.fastest import spans
from hpccomm.tuning import Times, Tuning
from hpccomm.units import format_bytes, format_us, rate_gbps

ENOUGH = 0.9

RULE = (
    f"the smallest one at which the fastest backend comes to {ENOUGH:.0%} of its highest rate, size / time: smaller "
    "pieces pay for latency, and larger ones begin later, so that less of them is hidden under computation"
)


@dataclass(frozen=True)
class Pick:
    """A backend and a size.

    Attributes:
        backend: The fastest at that size.
        size_bytes: The smallest size that comes to `ENOUGH` of the highest rate.
        gbps: Size over time there.
        highest_gbps: The highest of any size.
        highest_bytes: At which size that is.
        last_bytes: The largest size that was measured.
        others: How many times as long each other backend takes at that size.
    """

    backend: str
    size_bytes: int
    gbps: float
    highest_gbps: float
    highest_bytes: int
    last_bytes: int
    others: Mapping[str, float]

    def __str__(self) -> str:
        reached = f"{self.gbps:.3g} GB/s, at most {self.highest_gbps:.3g} (at {format_bytes(self.highest_bytes)}"
        reached += ", the largest that was measured)" if self.highest_bytes == self.last_bytes else ")"
        return "; ".join([reached, *(f"{name} takes {times:.2g} x the time" for name, times in self.others.items())])


def pick(times: Times) -> Pick:
    """Pick by the rule, from at least one measured size."""
    rates = {size: rate_gbps(size, min(of_size.values())) for size, of_size in sorted(times.items())}
    highest = max(rates, key=rates.__getitem__)
    size = next(size for size, rate in rates.items() if rate >= ENOUGH * rates[highest])
    ordered = sorted(times[size].items(), key=lambda one: one[1])
    (backend, least), *others = ordered
    ratios = {name: time / least for name, time in others}
    return Pick(backend, size, rates[size], rates[highest], highest, max(rates), ratios)


def summed(times: Mapping[str, Times], calls: Mapping[str, int]) -> Times:
    """Give the time of so many calls of each collective, at the sizes and for the backends that have all of them."""
    tables = [(times.get(name, {}), number) for name, number in calls.items()]
    found: Times = {}
    for size in sorted(set.intersection(*(set(table) for table, _ in tables))):
        for name in sorted(set.intersection(*(set(table[size]) for table, _ in tables))):
            found.setdefault(size, {})[name] = sum(number * table[size][name] for table, number in tables)
    return found


def explain(tuning: Tuning) -> dict[str, str]:
    """Give the advice for DDP, FSDP, TP and PP.

    Raises:
        OptionError: The table holds no times.
    """
    if not tuning.times.get("all_reduce"):
        raise OptionError(
            "explain a tuning table",
            found="it holds no times of all_reduce",
            remedy="make it again with python -m hpccomm.tune of this version",
            everywhere=True,
        )
    units = summed(tuning.times, {"all_gather": 2, "reduce_scatter": 1})
    return {
        "DDP": _picked(tuning.times["all_reduce"], "bucket_cap_mb={mib:g}", "all_reduce"),
        "FSDP": _picked(
            units, "units of {size} of parameters, by 2 all_gather + reduce_scatter", "all_gather and reduce_scatter"
        ),
        "TP": _tensor(tuning),
        "PP": _picked(tuning.times.get("sendrecv", {}), "messages of {size}, by sendrecv", "sendrecv"),
    }


def _picked(times: Times, form: str, wanted: str) -> str:
    """Give the backend, the size in a form, and why; or what was not measured."""
    if not times:
        return f"not measured: name {wanted} among --collective, on two ranks or more"
    found = pick(times)
    size = form.format(size=format_bytes(found.size_bytes), mib=found.size_bytes / 2**20)
    return f"{found.backend}, {size}: {found}"


def _tensor(tuning: Tuning) -> str:
    """Say by what the ranks of a layer sum activations: latency counts, as nothing hides it."""
    nodes, times = tuning.setup.nodes, tuning.times["all_reduce"]
    took = " and ".join(f"{format_us(min(times[size].values()))} us at {format_bytes(size)}" for size in _ends(times))
    all_reduce = f"all_reduce takes {took}, four times a layer, and nothing hides it"
    if len(nodes) == 1:
        return f"{spans(tuning.choices['all_reduce'])}: {all_reduce}"
    inside = f"measure python -m hpccomm.tune on {count(min(nodes), 'rank')} of one node for it"
    why = inside if min(nodes) > 1 else "here a node has one rank alone"
    return f"keep it inside a node; {why}. Over {len(nodes)} nodes {all_reduce}"


def _ends(times: Times) -> tuple[int, int]:
    return min(times), max(times)
