"""An operation that several backends can carry out one after the other, until one of them does it right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hpccomm.backends.base import Backend, Operation

Blocks = Sequence[torch.Tensor | None]
"""A block for each rank, or None."""


@dataclass(frozen=True)
class Repeatable:
    """How to begin it, and what must hold of its result.

    Attributes:
        begin: Begins it over a backend, with a result to overwrite.
        result: The user's.
        reads: Whether what stands in the result counts.
        same: Whether all ranks must get the same.
        stands: Whether the result is there already, and must not be touched.
        sent: What this rank sends to each, where that arrives unchanged.
        received: Gives what came from each, of a result.
    """

    begin: Callable[[Backend, torch.Tensor], Operation]
    result: torch.Tensor
    reads: bool = False
    same: bool = False
    stands: bool = False
    sent: Blocks = ()
    received: Callable[[torch.Tensor], Blocks] = lambda result: ()

    def store(self, out: torch.Tensor) -> None:
        """Put into the user's result what came out, once it is known to be right."""
        if not self.stands:
            self.result.copy_(out)
