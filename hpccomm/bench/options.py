"""What the benchmark is asked for, as one value; pure, and free of torch so that errors come at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

OPS = {"sum": "sum", "prod": "prod", "product": "prod", "min": "min", "max": "max", "avg": "avg"}

# The names of torch and of nccl-tests
DTYPES = {
    **dict.fromkeys(("float32", "float", "fp32"), "float32"),
    **dict.fromkeys(("float64", "double", "fp64"), "float64"),
    **dict.fromkeys(("float16", "half", "fp16"), "float16"),
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("int32", "int"), "int32"),
    **{name: name for name in ("int8", "uint8", "int16", "int64")},
}


@dataclass(frozen=True)
class Options:
    """What is measured and how.

    Attributes:
        collectives: Keys of `COLLECTIVES`.
        op: The operator of those that reduce.
        place: ``in``, ``out`` or ``both``; None for the usual one of each collective.
        dtype: Torch's name of the dtype.
        min_bytes: Smallest size.
        max_bytes: Largest size, unless the budget ends before.
        step_factor: Between a size and the next.
        iterations: Repetitions a size; None lets the budget decide.
        warmup_iters: Calls before the timed ones, or more where more are checked.
        check: Whether results are compared with what they must be.
        backends: Expressions, or @file.
        algorithms: Names of algorithms, each to be run over every leaf that moves data here. Without backends and
            algorithms, those backends that fit.
        pairs_bytes: Size of the large messages between all pairs of ranks; None measures no pairs.
        measures: Keys of `MEASURES`: what else is measured than tables of collectives.
        model: Key of `MODELS`, whose gradients or traffic are measured; None for the usual one.
        buckets: Sizes of gradient buckets in bytes.
        batch: Rows of a batch in backward, or micro-batches in a step; None for the usual number.
        tp: Ranks that share a layer of a transformer; None for the usual number.
        pp: Stages of a transformer; None for one.
        dp: Data parallel ranks; None for those that are left.
        scale: What the elements of a model's gradients or operations are divided by.
        budget_s: Seconds that measuring may take, over all tables and pairs.
        timeout_s: Deadline of one operation in seconds.
        json: File for the results, or None.
        trace: File or folder for a trace of all ranks, or None.
        report: Folder for the report, or None.
        sources: Files of earlier results, whose report is written without a run.
        csv: File for the results, or None.
        compare: No file, one file to compare the run with, or two files to compare without a run.
        tolerance: By which part of its time a row may be slower than the one that it is compared with.
        min_busbw_gbps: What the highest busbw of every backend in every table must reach, or None.
        suite: Name of the suite whose options these are, or None.
        device: Where the tensors are: ``cpu``, or ``cuda`` for each rank's GPU.
        sweep: Settings of NCCL to compare: ``nccl.NAME=VALUE,VALUE``, in all combinations.
        wide: Whether the table shows all columns.
        progress: ``auto``, ``on`` or ``off``.
    """

    collectives: tuple[str, ...] = ("all_reduce",)
    op: str = "sum"
    place: str | None = None
    dtype: str = "float32"
    min_bytes: int = 4
    max_bytes: int = 64 << 20
    step_factor: int = 4
    iterations: int | None = None
    warmup_iters: int = 2
    check: bool = True
    backends: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    pairs_bytes: int | None = None
    measures: tuple[str, ...] = ()
    model: str | None = None
    buckets: tuple[int, ...] = (1 << 20, 5 << 20, 25 << 20, 125 << 20)
    batch: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    scale: int = 1
    budget_s: float = 30.0
    timeout_s: float = 20.0
    json: Path | None = None
    trace: Path | None = None
    report: Path | None = None
    sources: tuple[Path, ...] = ()
    csv: Path | None = None
    compare: tuple[Path, ...] = ()
    tolerance: float = 0.1
    min_busbw_gbps: float | None = None
    suite: str | None = None
    device: str = "cpu"
    sweep: tuple[str, ...] = ()
    wide: bool = False
    progress: str = "auto"
