"""The function that makes the call of each kind."""

from __future__ import annotations

from collections.abc import Callable

from fuzz import blocks, chains, messages, movements, reductions
from fuzz.kinds import COLLECTIVES
from fuzz.seat import Call, Seat

_HOMES = (reductions, movements, blocks, messages, chains)

CALLS: dict[str, Callable[[Seat], Call]] = {
    name: next(getattr(home, name) for home in _HOMES if hasattr(home, name)) for name in COLLECTIVES
}
