"""How `checked` is asked for: by a variable, and outermost."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, world

from hpccomm.errors import ExpressionError, MismatchError

pytestmark = pytest.mark.mpi(min_size=2)

RANK, SIZE = COMM.rank, COMM.size


def test_a_variable_puts_it_around_any_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCCOMM_CHECK", "1")
    with world("A" * SIZE, "mpi4py") as made:
        assert made.backend == "checked(mpi4py)"
        with pytest.raises(MismatchError):
            dist.all_reduce(torch.ones(1 + (RANK == 0)))


def test_it_stands_outermost() -> None:
    with pytest.raises(ExpressionError, match="inside"), world("A" * SIZE, "ring(checked(mpi4py))"):
        pass
