"""What a fault is and when it strikes, as `faulty`'s second argument says it: ``late(at=inside, chance=0.1)``. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hpccomm.errors import OptionError
from hpccomm.expression import Expression

KINDS = ("raise", "wrong", "hang", "late", "stop")
MOMENTS = ("before", "inside", "after", "construction")
MOVES = ("send", "recv", "broadcast", "all_gather", "gather", "scatter", "all_to_all", "barrier")
OPERATIONS = ("any", "all_reduce", "reduce", "reduce_scatter", *MOVES)


@dataclass
class Fault:
    """A fault of one rank.

    Attributes:
        kind: One of `KINDS`.
        at: One of `MOMENTS`.
        operation: The one of `OPERATIONS` that it strikes, and of which calls are counted.
        chance: The part of these calls that it strikes, from 0 to 1.
        seed: What is drawn by, on each rank by itself: the same calls of a rank are struck in every run.
        calls: How many calls it has seen.
    """

    kind: str
    at: str = "before"
    operation: str = "any"
    chance: float = 1.0
    seed: int = 0
    calls: int = field(default=0, init=False)

    def is_known(self) -> bool:
        """Tell whether everything said of it is something that there is."""
        known = self.kind in KINDS and self.at in MOMENTS and self.operation in OPERATIONS
        return known and type(self.seed) is int and type(self.chance) in (int, float) and 0 <= self.chance <= 1

    def strikes(self, operation: str, call: int, rank: int) -> bool:
        """Count a call, and tell whether it is struck.

        Args:
            operation: What is called.
            call: The number of the only call that is meant, from 1; 0 for every call.
            rank: The rank that calls.
        """
        if self.operation not in ("any", operation):
            return False
        self.calls += 1
        is_meant = call in (0, self.calls)
        return is_meant and random.Random(f"{self.seed} {rank} {self.calls}").random() < self.chance


def fault_of(kind: Expression, inner: Expression) -> Fault:
    """Give the fault that an expression says.

    Raises:
        OptionError: There is none such.
    """
    try:
        found = Fault(kind.name, **dict(kind.options))  # type: ignore[arg-type]
    except TypeError:  # an option that no fault has
        found = Fault("")
    if kind.arguments or not found.is_known():
        raise OptionError(
            f"build backend faulty({inner}, {kind})",
            found=f"no fault is called {kind}",
            remedy=f"there are {', '.join(KINDS)}, with at={', '.join(MOMENTS)}, operation={', '.join(OPERATIONS)}, "
            "chance= from 0 to 1, and a whole seed=",
            everywhere=True,
        )
    return found
