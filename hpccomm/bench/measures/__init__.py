"""Measurements that are no table of one collective over sizes, by name; `MEASURES` says what each is.

Each is a module of this package with one function, `measure(run, built, budget_s)`: it measures over the backends that
were built within so many seconds, shows and records what came out, and gives its rows. Collective. Nothing here is
imported before it is asked for, as they need torch.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from hpccomm.bench.models import TRANSFORMERS
from hpccomm.bench.options import DTYPES, Options

if TYPE_CHECKING:
    from hpccomm.bench.candidates import Candidate
    from hpccomm.bench.rows import Row
    from hpccomm.bench.series import Run


@dataclass(frozen=True)
class Measure:
    """One measurement.

    Attributes:
        about: What it measures.
        options: Those of `Options` that only such measurements have.
        has_gradients: Whether it averages a module's gradients.
    """

    about: str
    options: tuple[str, ...] = ()
    has_gradients: bool = False


MEASURES = {
    "buckets": Measure(
        "average a model's gradients in buckets of several sizes", ("model", "buckets", "scale"), has_gradients=True
    ),
    "overlap": Measure(
        "how much of that is hidden under backward", ("model", "buckets", "batch", "scale"), has_gradients=True
    ),
    "workloads": Measure(
        "what a transformer's ranks send in a step of data, tensor and pipeline parallel training",
        ("model", "batch", "tp", "pp", "dp", "scale"),
    ),
    "stability": Measure("one all_reduce over and over: drift, spikes, stragglers"),
    "efficiency": Measure("busbw of the collectives above over that of sendrecv"),
}


def measure(name: str, run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Measure what has this name; collective."""
    found: Sequence[Row] = import_module(f"{__name__}.{name}").measure(run, built, budget_s)
    return found


def fault(options: Options, given: Container[str]) -> str | None:
    """Say which options do not go with what is measured, if so."""
    asked = [MEASURES[name] for name in options.measures]
    known = {option for one in asked for option in one.options}
    lost = [name for one in MEASURES.values() for name in one.options if name in given and name not in known]
    gradients = any(one.has_gradients for one in asked)
    faults = (
        (lost, f"--{next(iter(lost), '')} without a --measure that it is for"),
        (gradients and "float" not in DTYPES[options.dtype],
         f"-d {options.dtype} does not fit --measure {' '.join(options.measures)}: gradients are floats"),
        (gradients and options.device != "cpu",
         "--measure buckets and overlap are for tensors in host memory, not for --device cuda"),
        ("workloads" in options.measures and options.model not in (None, *TRANSFORMERS),
         f"--model {options.model} does not fit --measure workloads; take {', '.join(TRANSFORMERS)}"),
        ("efficiency" in options.measures and not {"sendrecv"} < set(options.collectives),
         "--measure efficiency compares the tables of --collective with that of sendrecv: name it, and others"),
    )  # fmt: skip
    return next((text for is_so, text in faults if is_so), None)
