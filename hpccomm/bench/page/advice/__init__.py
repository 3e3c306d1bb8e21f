"""Warnings: what in a run makes its figures worse than they need be, or less than they seem; pure.

The page lists them, and `hpccomm.bench.advice_report` writes them below the tables: so their words are ASCII.

A rule is a function from a run to advice; a new one is one more function, and its line in `RULES`.
"""

from __future__ import annotations

from hpccomm.bench.page.advice import placing, results, speeds
from hpccomm.bench.page.advice.rule import OWN, Advice, Rule
from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.summary import ALIKE
from hpccomm.bench.steadiness import DRIFT, LATE

_BUSBW = "nccl-tests, doc/PERFORMANCE.md: busbw is to be held against what the hardware can do"
_TORCH = "torch.distributed's documentation"

RULES = (
    Rule("a run did not come to its end", OWN, results.incomplete),
    Rule("a row or a pair is wrong, or failed", OWN, results.wrong),
    Rule("a backend fell back to another one", OWN, results.fell_back),
    Rule("a backend could not be built", OWN, results.not_built),
    Rule("a host has more ranks than cores", "Open MPI's documentation, oversubscription", placing.crowded),
    Rule("no rank shares cores, and one may use 1 core alone",
         "mpirun's manual, --bind-to: a core is the default of two ranks", placing.on_one_core),
    Rule("all ranks are on one host, where Gloo goes over loopback", OWN, placing.one_host),
    Rule("MPI does not join several ranks", OWN, placing.without_mpi),
    Rule(f"on several hosts mpi4py takes more than {placing.AHEAD:g} times as long as gloo at the largest size",
         "Open MPI's documentation, tuning of transports", placing.gloo_ahead),
    Rule("tensors are on GPUs, and gloo is measured", f"{_TORCH}, which backend to use", placing.gloo_on_gpus),
    Rule("gloo is measured, and several networks join all hosts that are at least "
         f"{placing.RAIL:g} times as fast as the one that is used",
         f"{_TORCH}, choosing the network interface", placing.one_rail),
    Rule(f"the highest busbw of a ring's collective is below {speeds.USED_WELL:.0%} of what pairs of two hosts reach",
         _BUSBW, speeds.link_unused),
    Rule(f"without pairs: it is below {speeds.USED_WELL:.0%} of that of sendrecv", _BUSBW, speeds.below_sendrecv),
    Rule("a host, rank or pair is slow by the rule under the heat map", OWN, speeds.slow),
    Rule("a backend hides nothing of averaging under backward with its best bucket size", OWN, speeds.hindered),
    Rule(f"buckets of at most 25 MiB take more than {ALIKE:g} times as long as larger ones",
         "torch's DistributedDataParallel, bucket_cap_mb; Li et al. 2020, PyTorch Distributed", speeds.small_buckets),
    Rule(f"a host or rank comes later than the others by {LATE:.0%} of the median time", OWN, speeds.late),
    Rule(f"the last fifth of the calls differs from the first by {DRIFT:.0%} or more", OWN, speeds.drifting),
    Rule(f"{results.NOISY_SHARE:.0%} of the rows have a 95th percentile above {results.NOISY:g} times the median",
         OWN, results.noisy),
    Rule("results were not checked", OWN, results.unchecked),
    Rule("a hierarchy has a busbw", "nccl-tests, doc/PERFORMANCE.md: busbw's factors are those of a flat ring",
         results.unknown_to_rings),
)  # fmt: skip


def advice(run: Run) -> list[Advice]:
    """Give all warnings of a run."""
    return [one for rule in RULES for one in rule.find(run)]
