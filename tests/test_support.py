"""The support table: what every (operator, dtype) becomes on a backend, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.distributed import ReduceOp

from hpccomm.backends.gloo import GlooBackend
from hpccomm.backends.hierarchical import HALVES
from hpccomm.backends.mpi import MpiBackend
from hpccomm.backends.reduction import Factor, load
from hpccomm.backends.support import Support, plan
from hpccomm.backends.support_table import markdown
from hpccomm.errors import UnsupportedError
from reference import DTYPES, OPS, has_meaning

README = (Path(__file__).parents[1] / "README.md").read_text()
TABLES = {"mpi4py": MpiBackend.support, "gloo": GlooBackend.support}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("name", TABLES)
def test_every_meaningful_reduction_has_a_plan_that_the_backend_serves(name, op, dtype) -> None:
    support = TABLES[name]
    if not has_meaning(op, dtype):
        with pytest.raises(UnsupportedError, match=rf"{op.name} over {name}"):
            plan(support, op, dtype, name=name)
        return
    found = plan(support, op, dtype, name=name)
    assert found.op in support.reductions[found.carry]
    assert found.seen_as.itemsize * found.width == dtype.itemsize
    assert found.carry.itemsize >= found.seen_as.itemsize
    if found.direct:
        assert found.carry == dtype
        assert op not in (ReduceOp.AVG, ReduceOp.PREMUL_SUM)


@pytest.mark.parametrize(
    ("name", "op", "dtype", "carry"),
    [
        ("mpi4py", ReduceOp.SUM, torch.float32, torch.float32),
        ("mpi4py", ReduceOp.SUM, torch.float16, torch.float32),
        ("mpi4py", ReduceOp.MAX, torch.bfloat16, torch.int32),
        ("gloo", ReduceOp.MIN, torch.float64, torch.int64),
        ("gloo", ReduceOp.SUM, torch.bfloat16, torch.bfloat16),
        ("gloo", ReduceOp.AVG, torch.float16, torch.float32),
        ("gloo", ReduceOp.AVG, torch.int8, torch.int64),
        ("gloo", ReduceOp.SUM, torch.int16, torch.int32),
        ("gloo", ReduceOp.MAX, torch.uint32, torch.int64),
        ("gloo", ReduceOp.BXOR, torch.bool, torch.uint8),
        ("mpi4py", ReduceOp.SUM, torch.float8_e4m3fn, torch.float32),
        ("mpi4py", ReduceOp.SUM, torch.complex64, torch.float32),
    ],
)
def test_what_is_carried(name, op, dtype, carry) -> None:
    assert plan(TABLES[name], op, dtype, name=name).carry == carry


@pytest.mark.parametrize(
    "factor", (0.1, torch.tensor(0.1, dtype=torch.float64), torch.tensor([0.1], dtype=torch.float64)), ids=str
)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.complex64), ids=str)
def test_a_factor_of_any_kind_and_dtype_gives_the_same_bits(factor: Factor, dtype: torch.dtype) -> None:
    how = plan(MpiBackend.support, ReduceOp.PREMUL_SUM, dtype, name="mpi4py")
    loaded = load(torch.tensor([1.0, 3.0], dtype=dtype), how, factor)
    assert loaded.dtype == how.carry == torch.float32
    expected = torch.tensor([1.0, 3.0]) * 0.1
    assert loaded.view(2, how.width)[:, 0].equal(expected)


def test_refusal_says_what_there_is() -> None:
    support = Support(frozenset({"cpu"}), {torch.float64: frozenset({ReduceOp.SUM})}, "", "")
    with pytest.raises(UnsupportedError, match=r"int32 with SUM over x") as refused:
        plan(support, ReduceOp.SUM, torch.int32, name="x")
    assert "float64" in refused.value.found
    assert refused.value.everywhere
    assert plan(support, ReduceOp.SUM, torch.float16, name="x").carry == torch.float64


def test_two_backends_in_a_row_do_what_both_do() -> None:
    both = TABLES["mpi4py"].joined(TABLES["gloo"])
    assert set(both.reductions) == set(TABLES["mpi4py"].reductions) & set(TABLES["gloo"].reductions)
    assert plan(both, ReduceOp.SUM, torch.uint64, name="both").carry == torch.int64
    halves = TABLES["gloo"].without(HALVES)
    assert plan(halves, ReduceOp.SUM, torch.float16, name="gloo").carry == torch.float32


def test_readme_shows_the_table() -> None:
    """``python -m hpccomm.backends.support_table`` prints what belongs there."""
    assert f"\n\n{markdown()}\n\n" in README
