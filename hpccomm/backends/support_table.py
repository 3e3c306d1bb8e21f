"""The support table for readers: in what each backend adds, as README shows it.

``python -m hpccomm.backends.support_table`` prints it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hpccomm.backends.c10d import ReduceOp
from hpccomm.backends.combine import REDUCTIONS
from hpccomm.backends.gloo import GlooBackend
from hpccomm.backends.mpi import MpiBackend
from hpccomm.backends.nccl_common import NCCL_SUPPORT
from hpccomm.backends.support import HALVES, Support, dtype_name, plan

_COLUMNS: Mapping[str, tuple[torch.dtype, ...]] = {
    "float64, float32, complex": (torch.float64, torch.float32, torch.complex128, torch.complex64),
    "float16, bfloat16": (torch.float16, torch.bfloat16),
    "float8": (torch.float8_e4m3fn, torch.float8_e5m2),
    "int8, uint8": (torch.int8, torch.uint8),
    "int16": (torch.int16,),
    "uint16": (torch.uint16,),
    "int32, int64": (torch.int32, torch.int64),
    "uint32": (torch.uint32,),
    "uint64": (torch.uint64,),
}


def rows() -> dict[str, Support]:
    """Give what each kind of backend reduces itself; `x` stands for any carrier."""
    mpi, gloo = MpiBackend.support, GlooBackend.support
    return {
        "`mpi4py`": mpi,
        "`gloo`": gloo,
        "`nccl`, `nccl_cupy`": NCCL_SUPPORT,
        "`ring(x)` and other algorithms": Support(mpi.devices, REDUCTIONS, "", ""),
        "`hierarchical(mpi4py, gloo)`": mpi.joined(gloo).without(HALVES),
    }


def markdown() -> str:
    """Lay the table out."""
    head = f"| a sum of | on | {' | '.join(_COLUMNS)} |"
    lines = [
        f"| {name} | {_devices(support)} | {' | '.join(_cell(support, of) for of in _COLUMNS.values())} |"
        for name, support in rows().items()
    ]
    return "\n".join([head, "|---" * (len(_COLUMNS) + 2) + "|", *lines])


def _devices(support: Support) -> str:
    """Say where tensors may be; what takes host memory alone has a GPU's tensors staged."""
    return "host, GPU" if "cpu" in support.devices else "GPU"


def _cell(support: Support, dtypes: tuple[torch.dtype, ...]) -> str:
    plans = [plan(support, ReduceOp.SUM, dtype, name="") for dtype in dtypes]
    carried = {
        "itself" if found.carry == found.seen_as == found.dtype or found.dtype.is_complex else dtype_name(found.carry)
        for found in plans
    }
    return ", ".join(sorted(carried))


if __name__ == "__main__":
    print(markdown())
