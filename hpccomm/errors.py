"""The exception family: what was asked, what was found, what to do.

Every error that hpccomm raises on purpose is an `HpccommError`. It knows nothing of ranks or torch: whoever
makes all ranks raise the same error does so with `everywhere`.
"""

from __future__ import annotations

from typing import Any


class HpccommError(Exception):
    """An error in three parts.

    Args:
        asked: What the caller wanted, e.g. ``"all_reduce of a bool tensor with AVG over mpi4py"``.
        found: What stood in the way.
        remedy: What the reader can do about it.
        everywhere: True when every rank of the job raises this same error, so that one rank prints for all.
    """

    def __init__(self, asked: str, *, found: str, remedy: str, everywhere: bool = False) -> None:
        super().__init__(asked)
        self.asked = asked
        self.found = found
        self.remedy = remedy
        self.everywhere = everywhere

    def __str__(self) -> str:
        return f"{self.asked}\n  found: {self.found}\n  do:    {self.remedy}"

    @property
    def summary(self) -> str:
        """The error on one line, for tables: what was asked and what was found."""
        return " ".join(f"{self.asked}: {self.found}".split())

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.asked, self.found, self.remedy, self.everywhere)


def _rebuild(kind: type[HpccommError], asked: str, found: str, remedy: str, everywhere: bool) -> HpccommError:
    return kind(asked, found=found, remedy=remedy, everywhere=everywhere)


class LaunchError(HpccommError, RuntimeError):
    """The processes were not started as the program needs them."""


class TopologyError(HpccommError, RuntimeError):
    """The ranks' node identities contradict each other."""


class NetworkError(HpccommError, RuntimeError):
    """No address, or a wrong one, to reach this host from the others."""


class ExpressionError(HpccommError, ValueError):
    """A backend expression that does not parse or does not fit the registered backends."""


class OptionError(HpccommError, ValueError):
    """An option, argument or environment variable with a value that does not fit."""


class ScheduleError(HpccommError, ValueError):
    """A schedule that does not do what its collective promises, or an algorithm that has none for it."""


class BackendError(HpccommError, RuntimeError):
    """A backend cannot be built here, or failed."""


class DeadGroupError(BackendError):
    """The group was given up before, here or by another rank, which had the error that counts."""


class RankLostError(BackendError):
    """A rank has died in a world that is to go on without it; `World.shrink` does that."""


class MismatchError(HpccommError, ValueError):
    """The ranks of a group called different things; nothing was sent, and the group lives on."""


class UnsupportedError(HpccommError, TypeError):
    """A backend does not serve this collective, operator, dtype, device or layout."""


class DeadlineError(HpccommError, TimeoutError):
    """An operation did not end within its deadline; its group is dead."""


class TrainingError(HpccommError, RuntimeError):
    """Calls of a training loop that do not fit together, or ranks whose models or gradients do not."""


class WorldError(HpccommError, RuntimeError):
    """The world is used before init, after close, or in a child process."""


class JobError(HpccommError, RuntimeError):
    """A batch job cannot be submitted, or did not do its work."""
