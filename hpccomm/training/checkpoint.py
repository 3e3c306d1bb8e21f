"""A checkpoint from which a run goes on to the same bits: all that has a state, and every rank's random numbers."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from zipfile import ZipFile

import torch
import torch.distributed as dist
from torch.serialization import get_unsafe_globals_in_checkpoint

from hpccomm.errors import OptionError, TrainingError
from hpccomm.training.randomness import set_states, states
from hpccomm.whole import remove_left_over, whole

_RANDOM = "random numbers of each rank"  # which no part can be called, as it is no word
_PROGRESS = "progress of the run"
_SETTINGS = "settings of the run"

Setting: TypeAlias = str | int | float | bool


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

    What has a state must have the same on all ranks, as under DDP: rank 0's is kept. The random numbers of torch on the
    CPU and, where CUDA is in use, on the current GPU, of NumPy and of Python are kept for each rank by itself. What a
    save that was killed left beside the file is deleted at the next save or load.

    Args:
        path: The file.
        group: The ranks; None for the default group.
        settings: What a run must not change when it goes on, such as its learning rate and seed, by the names that
            its user knows: Python's numbers and texts, the same on all ranks.
        parts: What has a state, by name.
    """

    def __init__(
        self,
        path: Path,
        *,
        group: dist.ProcessGroup | None = None,
        settings: Mapping[str, Setting] | None = None,
        **parts: Stateful,
    ) -> None:
        self._path, self._group, self._parts = path, group, parts
        self._settings = dict(settings or {})

    def save(self, progress: Mapping[str, Any]) -> None:
        """Write it; collective.

        Args:
            progress: Where the run stands: Python's numbers, texts, lists and dicts of them.

        Raises:
            TrainingError: The file cannot be written, or `load` would not take what is in it, so that the one before
                stays; the same on all ranks.
        """
        state = self._capture(dict(progress))
        failures: list[TrainingError | None] = [None]
        if dist.get_rank(self._group) == 0:
            failures = [self._written(state)]
        dist.broadcast_object_list(failures, group=self._group, group_src=0)
        if failures[0] is not None:
            raise failures[0]

    def load(self, *, resize: bool = False) -> dict[str, Any] | None:
        """Take the states over from the file, and give the progress that was saved; collective.

        Args:
            resize: Whether a file of another number of ranks is taken too: ranks that it does not know keep their own
                random numbers. The run goes on, but not to the same bits.

        Returns:
            None where there is no file.

        Raises:
            TrainingError: Only some ranks see the file, or not the same one, or it cannot be read; the same on all
                ranks.
            OptionError: It is of another number of ranks, of other parts, or of a run with other settings; the same on
                all ranks.
        """
        if dist.get_rank(self._group) == 0:
            remove_left_over(self._path)
        found, mark, fault = _read(self._path)
        self._see_that_it_fits(found, mark, fault, resize=resize)
        if found is None:
            return None
        self._take(found)
        progress: dict[str, Any] = found[_PROGRESS]
        return progress

    def capture(self) -> dict[str, Any]:
        """Give a copy of all states, for `restore`; collective."""
        return copy.deepcopy(self._capture({}))

    def restore(self, captured: Mapping[str, Any]) -> None:
        """Take the states that `capture` has given; it may be done again."""
        self._take(copy.deepcopy(dict(captured)))  # an optimiser would go on in the memory that it is given

    def _take(self, captured: Mapping[str, Any]) -> None:
        for name, part in self._parts.items():
            part.load_state_dict(captured[name])
        every, rank = captured[_RANDOM], dist.get_rank(self._group)
        if rank < len(every):
            set_states(every[rank])

    def _capture(self, progress: dict[str, Any]) -> dict[str, Any]:
        every: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(every, states(), group=self._group)
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return {**parts, _RANDOM: every, _PROGRESS: progress, _SETTINGS: self._settings}

    def _written(self, state: Mapping[str, Any]) -> TrainingError | None:
        """Write it, and give what stands in the way, if anything."""
        remove_left_over(self._path)  # before it is written, which may need the room
        try:
            with whole(self._path) as beside:
                torch.save(state, beside)
                _require_loadable(beside)
                with beside.open("rb") as file:
                    os.fsync(file.fileno())  # before it takes the place of the last one, which the host may not outlive
        except Exception as error:  # the other ranks wait for it
            cannot_write = isinstance(error, OSError | RuntimeError)  # torch's own writer raises the latter
            return TrainingError(
                f"write the checkpoint {self._path}",
                found=str(error),
                remedy="name a file in a folder that exists and has room"
                if cannot_write
                else "keep tensors, Python's numbers, texts, lists and dicts of them",
                everywhere=True,
            )
        return None

    def _see_that_it_fits(self, found: Mapping[str, Any] | None, mark: str, fault: str, *, resize: bool) -> None:
        every: list[tuple[str, str, dict[str, Setting]]] = [("", "", {})] * dist.get_world_size(self._group)
        dist.all_gather_object(every, (mark, fault, self._settings), group=self._group)
        faults = {rank: fault for rank, (_, fault, _) in enumerate(every) if fault}
        if faults:
            raise TrainingError(
                f"go on from the checkpoint {self._path}",
                found=f"ranks {[*faults]} cannot read it: {next(iter(faults.values()))}",
                remedy="bring back a whole one, or move it away to begin anew",
                everywhere=True,
            )
        if any(one[0] != mark for one in every):
            sees = [rank for rank, (mark, *_) in enumerate(every) if mark]
            raise TrainingError(
                f"go on from the checkpoint {self._path}",
                found=f"not all ranks see the same file; ranks {sees} see one",
                remedy="name a file on a file system that all nodes share",
                everywhere=True,
            )
        if found is None:
            return
        size, ranks = len(every), len(found[_RANDOM])
        if {*found} != {*self._parts, _RANDOM, _PROGRESS, _SETTINGS} or not (resize or ranks == size):
            raise OptionError(
                f"go on from the checkpoint {self._path} with {size} ranks and {', '.join(self._parts)}",
                found=f"it is of {ranks} ranks, with {', '.join(sorted(found))}",
                remedy="start as many ranks of the same program as have written it, or name another file; "
                "load(resize=True) takes one of another number",
                everywhere=True,
            )
        self._require_settings(found[_SETTINGS], [settings for *_, settings in every])

    def _require_settings(self, begun_with: Mapping[str, Setting], every: Sequence[Mapping[str, Setting]]) -> None:
        """Refuse ranks with other settings than the file's run, or where it had none than each other."""
        wanted = begun_with or every[0]
        differs = next((settings for settings in every if settings != wanted), None)
        if differs is None:
            return
        names = [name for name in {**begun_with, **differs} if begun_with.get(name, ...) != differs.get(name, ...)]
        raise OptionError(
            f"go on from the checkpoint {self._path} with {_listed(differs, names)}",
            found=f"it is of a run with {_listed(begun_with, names)}",
            remedy="give what that run was begun with, or name another file to begin anew",
            everywhere=True,
        )


def _read(path: Path) -> tuple[dict[str, Any] | None, str, str]:
    """Give what is in a file, what tells it from every other one, and what stands in the way; None without a file."""
    try:
        with ZipFile(path) as file:  # which says it in fewer words where it is none
            sums = [(record.filename, record.CRC) for record in file.infolist()]
        found = torch.load(path, map_location="cpu")
        if not isinstance(found, dict) or not {_RANDOM, _PROGRESS} <= {*found}:
            return None, "", "it was not written by Checkpoint"
        found.setdefault(_SETTINGS, {})  # that of an earlier hpccomm has none
    except FileNotFoundError:
        return None, "", ""
    except Exception as error:  # the other ranks wait for what this one has seen
        return None, "", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return found, hashlib.sha256(repr(sums).encode()).hexdigest(), ""


def _listed(settings: Mapping[str, Setting], names: Sequence[str]) -> str:
    return ", ".join(f"{name} {settings[name]}" if name in settings else f"no {name}" for name in names)


def _require_loadable(path: Path) -> None:
    """Refuse a file in which is what torch.load takes from no file.

    Raises:
        TypeError: There is.
    """
    strange = get_unsafe_globals_in_checkpoint(path)
    if strange:
        raise TypeError(f"in it is what torch.load takes from no file: {', '.join(sorted(strange))}")
