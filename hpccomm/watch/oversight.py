"""Who looks after a group: what its operations ask and tell beyond themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpccomm.watch.flight import Entry, GroupLog


@dataclass(frozen=True)
class Watch:
    """Who looks after a group.

    Attributes:
        blame: Finds out who holds an operation up, in words; nothing where that is not known.
        on_death: Called once when the group dies, with its record and whether all ranks know it by themselves.
        lost: Says which ranks have died, where the job goes on without them, given an error that may come of it.
        on_close: Called with the group's record when the group is closed.
    """

    blame: Callable[[GroupLog, Entry], str] = lambda log, entry: ""
    on_death: Callable[[GroupLog, bool], Any] = lambda log, everywhere: None
    lost: Callable[[Exception | None], str] = lambda error: ""
    on_close: Callable[[GroupLog], Any] = lambda log: None


NOBODY = Watch()
