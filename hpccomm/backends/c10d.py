"""Torch's distributed parts under one roof, with the types that its stubs leave out.

All other modules take them from here. It adds nothing of its own.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from torch._C import _distributed_c10d as _c10d
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    GradBucket,
    HashStore,
    PrefixStore,
    ProcessGroup,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    Store,
    TCPStore,
    Work,
)

Op: TypeAlias = ReduceOp.RedOpType

# Classes whose stubs lack most of what they have.
Backend: Any = getattr(_c10d, "Backend", object)
ProcessGroupGloo: Any = getattr(_c10d, "ProcessGroupGloo", None)
ProcessGroupNCCL: Any = getattr(_c10d, "ProcessGroupNCCL", None)

__all__ = [
    "AllToAllOptions",
    "AllgatherOptions",
    "AllreduceOptions",
    "Backend",
    "BarrierOptions",
    "BroadcastOptions",
    "GatherOptions",
    "GradBucket",
    "HashStore",
    "Op",
    "PrefixStore",
    "ProcessGroup",
    "ProcessGroupGloo",
    "ProcessGroupNCCL",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
    "Store",
    "TCPStore",
    "Work",
]
