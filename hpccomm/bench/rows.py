"""What was measured, as data: a `Row` a size, a `Cell` a backend. Table and files are made from these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hpccomm.bench.metrics import Times


class State(Enum):
    """How a backend did at one size; the value stands in the table where a time would."""

    MEASURED = ""
    WRONG = "wrong"
    FAILED = "failed"
    DROPPED = "-"


@dataclass(frozen=True)
class Cell:
    """One backend at one size.

    Attributes:
        backend: Its expression.
        state: How it did.
        times: For MEASURED alone.
        wrong: Wrong elements over all ranks; None where results were not checked or there are none.
        error: What went wrong, for all states but MEASURED.
        algorithm: Name of the schedule that it runs; None where a library chooses.
        wire_bytes: Bytes that leave a node, for hierarchies.
        fell_back: Each change of the backend that carries the operations, so far, in words.
    """

    backend: str
    state: State
    times: Times | None = None
    wrong: int | None = None
    error: str | None = None
    algorithm: str | None = None
    wire_bytes: int | None = None
    fell_back: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One size over all backends.

    Attributes:
        size_bytes: Bytes of the operation.
        cells: In the order of the columns.
        moves_bytes: What the rates count, where that is not the size.
    """

    size_bytes: int
    cells: tuple[Cell, ...]
    moves_bytes: int | None = None

    @property
    def moved_bytes(self) -> int:
        """What the rates count."""
        return self.size_bytes if self.moves_bytes is None else self.moves_bytes

    @property
    def iterations(self) -> int | None:
        """Timed repetitions; the same for all backends that were measured, None if none was."""
        return next((cell.times.iterations for cell in self.cells if cell.times), None)

    def has(self, state: State) -> bool:
        """Tell whether a backend did so."""
        return any(cell.state is state for cell in self.cells)

    @property
    def is_broken(self) -> bool:
        """Whether a backend failed or gave wrong results."""
        return self.has(State.WRONG) or self.has(State.FAILED)

    @property
    def best(self) -> str | None:
        """The backend with the smallest median, of at least two that were measured."""
        medians = {cell.backend: cell.times.median_us for cell in self.cells if cell.times}
        return min(medians, key=medians.__getitem__) if len(medians) > 1 else None
