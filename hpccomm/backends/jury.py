"""How all ranks of a group agree on whether an operation went well, apart from the backend that carried it.

The jury has channels of its own; its messages are small and polled. It knows neither operations nor other backends.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from hpccomm.backends.base import LibraryCall, Operation
from hpccomm.backends.c10d import ReduceOp
from hpccomm.backends.context import Context
from hpccomm.backends.layout import as_bytes
from hpccomm.backends.registry import build
from hpccomm.expression import Expression

HEARD = "another rank gave it up"
"""A failure that counts for less than any that a rank has seen itself."""

_TEXT = 512


@dataclass(frozen=True)
class Verdict:
    """What all ranks know alike.

    Attributes:
        failure: What went wrong, in words; empty where all is well.
        differs: Whether nothing went wrong but that the ranks have different sums.
        asked: Whether some rank asked for what `agree` lets it ask for.
    """

    failure: str
    differs: bool = False
    asked: bool = False


class Jury:
    """The ranks of one group.

    Args:
        context: Channels to them that nothing else uses; MPI's, where it joins the ranks, else Gloo's.
    """

    def __init__(self, context: Context) -> None:
        leaf = "gloo" if context.communicator is None else "mpi4py"
        self._carrier = build(Expression(leaf), context)
        self._rank, self._size = self._carrier.rank, self._carrier.size

    def agree(
        self, failure: str, sum_of_bytes: int = 0, *, asks: bool = False
    ) -> Generator[str | LibraryCall, None, Verdict]:
        """Find out whether no rank saw a failure, and all have the same sum; collective.

        Args:
            failure: What went wrong on this rank, or an empty text.
            sum_of_bytes: Of a result that must be equal on all ranks.
            asks: Whether this rank asks the others for something.
        """
        none = 2 * self._size
        mine = none if not failure else self._rank + self._size * (failure == HEARD)
        turned = ~sum_of_bytes, -int(asks)  # the order around, so that MIN gives the most
        words = torch.tensor([mine, sum_of_bytes, *turned], device="cpu")
        yield from self._carrier.all_reduce(words, ReduceOp.MIN)
        first, least, most, asked = words.tolist()
        if first < none:
            rank = first % self._size
            text = yield from self._told(failure, rank)
            return Verdict(f"rank {rank}: {text}")
        differs = least != ~most
        return Verdict("the ranks got different results" if differs else "", differs, asked < 0)

    def arrive(self) -> Operation:
        """Wait for all ranks."""
        return self._carrier.barrier()

    def compare(
        self, sent: Sequence[torch.Tensor | None], received: Sequence[torch.Tensor | None]
    ) -> Generator[str | LibraryCall, None, str]:
        """Compare what came from each rank with what it sent; collective.

        Args:
            sent: What this rank sent to each, or None.
            received: What came from each, or None.

        Returns:
            What differs on this rank, or an empty text.
        """
        mine = torch.tensor([0 if block is None else checksum(block) for block in sent], device="cpu")
        theirs, each = torch.empty_like(mine), [1] * self._size
        yield from self._carrier.all_to_all(theirs, mine, each, each)
        sums = theirs.tolist()
        wrong = [rank for rank, block in enumerate(received) if block is not None and checksum(block) != sums[rank]]
        return f"not what rank {', '.join(map(str, wrong))} sent" if wrong else ""

    def close(self) -> None:
        """Free the channels."""
        self._carrier.close()

    def _told(self, text: str, root: int) -> Generator[str | LibraryCall, None, str]:
        data = text.encode(errors="replace")[:_TEXT].ljust(_TEXT, b"\0")
        buffer = torch.tensor(list(data), dtype=torch.uint8, device="cpu")
        yield from self._carrier.broadcast(buffer, root)
        return bytes(buffer.tolist()).rstrip(b"\0").decode(errors="replace")


def checksum(tensor: torch.Tensor) -> int:
    """Add a dense tensor's bytes up in an int64, eight at a time.

    One bit that differs makes another sum; words that have changed places do not.
    """
    data = as_bytes(tensor)
    if data.storage_offset() % 8:
        data = data.clone()
    whole = data.numel() // 8 * 8
    return int(data[:whole].view(torch.int64).sum() + data[whole:].sum())
