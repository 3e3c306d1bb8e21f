"""Hierarchical all-reduces of many pieces, some of which cross while others are reduced; and narrower messages."""

from __future__ import annotations

from itertools import repeat

import numpy as np
import pytest
import torch
import torch.distributed as dist
from worlds import COMM, PLACEMENTS, world

from hpccomm.backends import hierarchical
from hpccomm.errors import OptionError

pytestmark = pytest.mark.mpi(min_size=2)

RANK, SIZE = COMM.rank, COMM.size
HERE = PLACEMENTS[SIZE]
RAILS = ["mpi4py", "ring(mpi4py)", "halving_doubling(gloo)", "mpi4py(deadline=strict)"]
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchical, "SHARD_BYTES", 256)


def random_tensors(count: int, scale: float = 1.0) -> np.ndarray:
    """Give every rank's tensor, the same on all ranks."""
    return np.random.default_rng(count).standard_normal((SIZE, count)).astype(np.float32) * np.float32(scale)


@pytest.mark.parametrize(("placement", "rail"), [*zip(HERE, repeat("gloo")), *zip(repeat(HERE[-1]), RAILS)])
def test_pieces_are_put_together_right(placement: str, rail: str) -> None:
    with world(placement, f"hierarchical(shm(crossover=200), {rail})"):
        for count in (1, 127, 1601):
            tensors = [torch.arange(count, dtype=torch.float32) * (RANK + 1) + number for number in range(3)]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            for number, (tensor, work) in enumerate(zip(tensors, works, strict=True)):
                work.wait()
                expected = torch.arange(count) * (SIZE * (SIZE + 1) // 2) + number * SIZE
                assert (tensor == expected).all()


@pytest.mark.parametrize(("placement", "wire"), [*zip(HERE, repeat("bfloat16")), (HERE[-1], "float16")])
def test_narrow_messages_keep_their_bound_and_give_all_ranks_the_same_bits(placement: str, wire: str) -> None:
    with world(placement, f"hierarchical(mpi4py, gloo, wire={wire})"):
        for count, scale in ((1, 1.0), (1000, 1.0), (1601, 3000.0)):
            inputs = random_tensors(count, scale)
            for op, parts in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, SIZE)):
                tensor = torch.from_numpy(inputs[RANK].copy())
                dist.all_reduce(tensor, op)
                error = np.abs(tensor.double().numpy() - inputs.astype(np.float64).sum(0) / parts)
                unit = UNIT[wire] * (1 + UNIT[wire])
                bound = (2 * unit + SIZE * 2.0**-23) * np.abs(inputs.astype(np.float64)).sum(0) / parts
                assert (error <= bound + SIZE * 2.0**-24).all()
                assert len({bytes(one) for one in COMM.allgather(tensor.numpy().tobytes())}) == 1
        nodes = len(set(placement))
        if nodes > 1:
            assert (error > SIZE * 2.0**-23 * np.abs(inputs).sum(0)).any(), "nothing was rounded on the way"


def test_narrow_messages_hold_what_the_inputs_dtype_holds() -> None:
    with world(HERE[-1], "hierarchical(mpi4py, gloo, wire=float16)"):
        tensor = torch.full((100,), 61_440.0)
        dist.all_reduce(tensor)
        assert (tensor == SIZE * 61_440.0).all()
        exact = torch.full((100,), 1 + 2.0**-40, dtype=torch.float64)
        dist.all_reduce(exact)
        assert (exact == SIZE * (1 + 2.0**-40)).all(), "float64 travels as it is"
        highest = torch.full((100,), 1 + 2.0**-20 * RANK)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        assert (highest == 1 + 2.0**-20 * (SIZE - 1)).all(), "what is not added is not rounded"


def test_an_unknown_dtype_of_messages_is_refused() -> None:
    with pytest.raises(OptionError, match="wire=int8"), world("A" * SIZE, "hierarchical(mpi4py, gloo, wire=int8)"):
        pass
