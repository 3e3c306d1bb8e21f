"""What a check is: how it looks at the machine, what it shows of that, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hpccomm.doctor.case import Case, Facts
from hpccomm.doctor.finding import Finding

Scope = Literal["rank", "host", "job", "trial"]


@dataclass(frozen=True)
class Line:
    """One line of what there is: equal lines of several hosts are shown once.

    Attributes:
        label: What it is.
        text: How it is.
        is_own: Whether each host has its own, so that a difference says nothing.
    """

    label: str
    text: str
    is_own: bool = False


def _show_nothing(_: Facts) -> Iterator[Line]:
    return iter(())


@dataclass(frozen=True)
class Check:
    """One check; a new one is a file in this folder and an entry in its table.

    Attributes:
        name: Its name.
        look: Looks at the machine, given the environment, and gives plain data; may hang or raise. Needs neither
            torch nor MPI.
        judge: Gives what is wrong, from all ranks' facts.
        show: Gives what the reader should see of one host; among the facts is the ``chosen`` address.
        scope: Who looks: every rank, one rank of each host, the first rank alone, or the trial on every rank.
    """

    name: str
    look: Callable[[Mapping[str, str]], dict[str, Any]]
    judge: Callable[[Case], Iterator[Finding]]
    show: Callable[[Facts], Iterator[Line]] = _show_nothing
    scope: Scope = "host"
