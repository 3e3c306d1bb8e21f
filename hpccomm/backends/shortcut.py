"""The short way of small all-reduces: what the backend has prepared is run here and now, past door and generators.

It is taken by a synchronous call on a dense tensor of host memory, while nothing else of the group is under way. What
it records, waits for and raises is what `Runner.run` does for the same call.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import torch

from hpccomm.backends.base import Startable
from hpccomm.backends.drive import TRIES
from hpccomm.backends.engine import engine
from hpccomm.backends.layout import is_dense
from hpccomm.backends.runner import Runner
from hpccomm.backends.work import DoneWork


class Shortcut:
    """The short way of one group.

    Args:
        runner: The group's.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._is_open = runner.lane is None and not runner.notes_all

    def all_reduce(self, tensor: torch.Tensor, options: Any) -> DoneWork | None:
        """Reduce a tensor in place, or give None, having done nothing, where the long way must be taken."""
        runner = self._runner
        backend, log, line = runner.backend, runner.log, runner.line
        if not backend.prepared or backend.checks or not self._is_open or getattr(options, "asyncOp", True):
            return None
        if not tensor.is_cpu or not is_dense(tensor) or not line.turn.acquire(False):
            return None
        try:
            prepared = backend.prepared.get((tensor.dtype, hash(options.reduceOp), tensor.numel()))
            is_queued = engine.waits_for_others or log.why_dead is not None or line.tasks
            if prepared is None or prepared.busy or is_queued:
                return None
            log.started = sequence = log.started + 1
            self._run(sequence, prepared, tensor, options)
        finally:
            line.turn.release()
        return runner.done

    def _run(self, sequence: int, prepared: Startable, tensor: torch.Tensor, options: Any) -> None:
        runner, log, count, dtype = self._runner, self._runner.log, tensor.numel(), tensor.dtype
        try:
            if prepared.attempt(tensor, TRIES):
                log.entries.append((sequence, "all_reduce", count, dtype, monotonic()))
            else:
                runner.finish(log.begin("all_reduce", count, dtype), prepared.rest(), prepared.waits_for, options)
        except BaseException as error:
            runner.give_up(log.current or log.begin("all_reduce", count, dtype), error)
        finally:
            log.current = None
