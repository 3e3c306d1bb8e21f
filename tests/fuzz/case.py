"""What one case is, printed on one line."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.distributed import ReduceOp

from fuzz.kinds import COLLECTIVES
from reference import Op


@dataclass(frozen=True)
class Part:
    """One call of a collective, by all ranks.

    Attributes:
        collective: Its name in `collectives`.
        dtype: Of all its tensors.
        op: The operator, where it reduces.
        values: ``exact``, ``normal`` or ``bits``.
        shape: Of one rank's tensor, or of one block.
        written: Layout of the tensors that are written, for each rank.
        read: Layout of the tensors that are only read, for each rank.
        root: The root, or the first rank of a ring.
        direct: Call the group's own method instead of torch.distributed's function.
        salt: What its values, uneven counts and tags are made from.
    """

    collective: str
    dtype: torch.dtype
    op: Op
    values: str
    shape: tuple[int, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]
    root: int
    direct: bool
    salt: int

    def __str__(self) -> str:
        dtype, op = str(self.dtype).removeprefix("torch."), ReduceOp.RedOpType(self.op).name
        how = "group." if self.direct else ""
        dtype += f" {op}" if COLLECTIVES[self.collective].reduces else ""
        layouts = f"{_short(self.written)} of {_short(self.read)}"
        return f"{how}{self.collective}({dtype} {self.values} {self.shape} {layouts} root {self.root})"


@dataclass(frozen=True)
class Case:
    """Some calls over one group.

    Attributes:
        number: Its number.
        nodes: The node of each rank, a letter each.
        expression: The backend.
        max_count: HPCCOMM_MAX_COUNT of the group, or None.
        parts: The calls, in the order in which they begin.
        order: The parts in the order in which they are waited for; none where each ends before the next begins.
        wait: How it is waited: ``wait``, ``timeout``, ``poll`` or ``future``.
    """

    number: int
    nodes: str
    expression: str
    max_count: int | None
    parts: tuple[Part, ...]
    order: tuple[int, ...]
    wait: str

    def __str__(self) -> str:
        limit = f", at most {self.max_count} a call" if self.max_count else ""
        how = f", asynchronous, {self.wait} in order {self.order}" if self.order else ""
        return f"{self.expression} on {self.nodes}{limit}{how}: {'; '.join(map(str, self.parts))}"


def _short(layouts: tuple[str, ...]) -> str:
    return layouts[0] if len(set(layouts)) == 1 else "/".join(layouts)
