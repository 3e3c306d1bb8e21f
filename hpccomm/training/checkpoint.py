"""A checkpoint from which a run goes on to the same bits: all that has a state, and every rank's random numbers."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

from hpccomm.errors import OptionError, TrainingError
from hpccomm.whole import whole

_RANDOM = "random numbers of each rank"
_PROGRESS = "progress"


class Stateful(Protocol):
    """A module, an optimiser, a scaler, a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Give the state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take a state."""


class Checkpoint:
    """One file for all ranks, on a file system that they share; there is a whole one or none at any time.

    ::

        checkpoint = Checkpoint(path, model=ddp.module, optimizer=optimizer, scaler=scaler)
        progress = checkpoint.load() or {"epoch": 0, "step": 0}
        checkpoint.save({"epoch": 3, "step": 17})

    What has a state must have the same on all ranks, as under DDP: rank 0's is kept. The random numbers of torch on
    CPUs, of NumPy and of Python are kept for each rank by itself.

    Args:
        path: The file.
        group: The ranks; None for the default group.
        parts: What has a state, by name.
    """

    def __init__(self, path: Path, *, group: dist.ProcessGroup | None = None, **parts: Stateful) -> None:
        self._path, self._group, self._parts = path, group, parts

    def save(self, progress: Mapping[str, Any]) -> None:
        """Write it; collective.

        Args:
            progress: Where the run stands: numbers, texts, lists and dicts of them.

        Raises:
            TrainingError: The file cannot be written; the same on all ranks.
        """
        state = self._capture(dict(progress))
        failures: list[Any] = [None]
        if dist.get_rank(self._group) == 0:
            try:
                with whole(self._path) as beside:
                    torch.save(state, beside)
            except (OSError, RuntimeError) as error:  # torch's own writer raises the latter
                failures = [str(error)]
        dist.broadcast_object_list(failures, group=self._group, group_src=0)
        if failures[0] is not None:
            raise TrainingError(
                f"write the checkpoint {self._path}",
                found=failures[0],
                remedy="name a file in a folder that exists and has room",
                everywhere=True,
            )

    def load(self, *, resize: bool = False) -> dict[str, Any] | None:
        """Take the states over from the file, and give the progress that was saved; collective.

        Args:
            resize: Whether a file of another number of ranks is taken too: ranks that it does not know keep their own
                random numbers. The run goes on, but not to the same bits.

        Returns:
            None where there is no file.

        Raises:
            TrainingError: Only some ranks see the file, or not the same one; the same on all ranks.
            OptionError: It is of another number of ranks, or of other parts; the same on all ranks.
        """
        found = torch.load(self._path, map_location="cpu") if self._path.exists() else None
        self._see_that_it_fits(found, resize=resize)
        if found is None:
            return None
        self.restore(found)
        progress: dict[str, Any] = found[_PROGRESS]
        return progress

    def capture(self) -> dict[str, Any]:
        """Give a copy of all states, for `restore`; collective."""
        return copy.deepcopy(self._capture({}))

    def restore(self, captured: Mapping[str, Any]) -> None:
        """Take the states that `capture` has given."""
        for name, part in self._parts.items():
            part.load_state_dict(captured[name])
        every, rank = captured[_RANDOM], dist.get_rank(self._group)
        if rank < len(every):
            _set_random(every[rank])

    def _capture(self, progress: dict[str, Any]) -> dict[str, Any]:
        every: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(every, _random(), group=self._group)
        states = {name: part.state_dict() for name, part in self._parts.items()}
        return {**states, _RANDOM: every, _PROGRESS: progress}

    def _see_that_it_fits(self, found: Mapping[str, Any] | None, *, resize: bool) -> None:
        size = dist.get_world_size(self._group)
        mine = None if found is None else (len(found[_RANDOM]), sorted(found), found[_PROGRESS])
        every: list[Any] = [None] * size
        dist.all_gather_object(every, mine, group=self._group)
        if any(one != every[0] for one in every):
            sees = [rank for rank, one in enumerate(every) if one is not None]
            raise TrainingError(
                f"go on from the checkpoint {self._path}",
                found=f"not all ranks see the same file; ranks {sees} see one",
                remedy="name a file on a file system that all nodes share",
                everywhere=True,
            )
        if mine is None:
            return
        names = sorted([*self._parts, _RANDOM, _PROGRESS])
        if mine[1] != names or not (resize or mine[0] == size):
            raise OptionError(
                f"go on from the checkpoint {self._path} with {size} ranks and {', '.join(self._parts)}",
                found=f"it is of {mine[0]} ranks, with {', '.join(mine[1])}",
                remedy="start as many ranks of the same program as have written it, or name another file; "
                "load(resize=True) takes one of another number",
                everywhere=True,
            )


def _random() -> dict[str, Any]:
    """Give the states of the random numbers, as torch.load takes them without trusting the file."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "numpy": [kind, np.asarray(keys).tolist(), *rest],
        "python": random.getstate(),
    }


def _set_random(states: Mapping[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    np.random.set_state(tuple(states["numpy"]))
    random.setstate(states["python"])
