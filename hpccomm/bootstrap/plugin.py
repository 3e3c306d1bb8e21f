"""Torch's door to hpccomm: the creator that `init_process_group("hpccomm")` and `new_group` call.

The expression comes with `pg_options`, else from the world that stands, else from HPCCOMM_BACKEND, else it is
`auto`. Without a world (a torchrun-style program), the first group boots from the environment and torch's store.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from hpccomm.backends.bare import has_backend_class
from hpccomm.backends.base import Backend
from hpccomm.backends.c10d import PrefixStore, Store
from hpccomm.backends.context import Context
from hpccomm.backends.device import device_of
from hpccomm.backends.lane import Lane
from hpccomm.backends.process_group import NAME, HpccommBackend, HpccommProcessGroup
from hpccomm.backends.registry import build
from hpccomm.backends.runner import Runner
from hpccomm.backends.staged import staged
from hpccomm.backends.traced_runner import TracedRunner
from hpccomm.bootstrap import tracing
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.agreement import agreed
from hpccomm.bootstrap.beside import GroupBeside
from hpccomm.bootstrap.boot import Joined, boot
from hpccomm.bootstrap.connect import Boot
from hpccomm.bootstrap.store import fresh, meet
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import BackendError, DeadlineError, HpccommError, OptionError, RankLostError, WorldError
from hpccomm.exchange import together
from hpccomm.expression import Expression
from hpccomm.timeline.recorder import recording
from hpccomm.watch.flight import GroupLog, flight
from hpccomm.watch.oversight import Watch

DEVICES = ("cpu", "cuda") if torch.version.cuda else ("cpu",)


@dataclass(frozen=True)
class Options:
    """What `pg_options` tells hpccomm about a group.

    Attributes:
        backend: The group's backend expression.
    """

    backend: str | Expression


class _Current:
    """The boot that new groups are made from, and the expression where a group names none.

    Attributes:
        boot: The boot, or None before the first.
        of_torch: Whether one of torch's groups brought it, and not a world; another default group brings another.
        backend: The expression of the world that stands.
        takes_leave: Whether the other ranks are told when this process ends.
    """

    boot: Boot | None = None
    of_torch: bool = False
    backend: Expression | None = None
    takes_leave: bool = False


_current = _Current()


def make_groups_from(booted: Boot, backend: Expression | None = None) -> None:
    """Have torch's groups made from these ranks, by default with this backend, until `destroy_groups`."""
    _current.boot, _current.of_torch, _current.backend = booted, False, backend


def register() -> None:
    """Register the backend name with torch; a second call does nothing."""
    if NAME.upper() not in dist.Backend._plugins:
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=list(DEVICES))


def create(options: Any, pg_options: object | None) -> HpccommProcessGroup | HpccommBackend:
    """Make one group, as torch asks for it; collective over the group's ranks.

    Args:
        options: Torch's description of the group: store, ranks, timeout.
        pg_options: An `Options`, or None.

    Raises:
        DeadlineError: Ranks did not come within the group's deadline; the text says which.
        HpccommError: The same on all ranks of the group.
    """
    booted = _boot(options)
    ranks = list(options.global_ranks_in_group) or list(range(booted.topology.world_size))
    name = options.group_id or "world"
    store, timeout_s = fresh(options.store, ranks, "group"), options.timeout.total_seconds()
    if options.global_ranks_in_group and not booted.survives:  # MPI itself tells survivors of a death, but not a store
        meet(
            PrefixStore("meeting", store),
            ranks,
            booted.topology.rank,
            timeout_s=timeout_s,
            asked=f"make group {name} of {len(ranks)} ranks",
            remedy="see whether these ranks make this group too, and their output for why they stopped",
        )
    control = control_of(name, ranks, booted, store, timeout_s=timeout_s)
    try:
        expression = _as_checked(agreed(control.exchange, lambda: _asked(pg_options)))
        backend = built(expression, control)
    finally:
        control.close()
    log = GroupLog(name, ranks, control.topology.rank, backend.expression)
    log.notes += [*backend.notes, *backend.fell_back]
    flight.add(log)
    lane = _lane(backend)
    watch = Watch(vigil.blame, vigil.on_death, vigil.lost, flight.drop)
    return _face(_runner(backend, log, asked=expression, watch=watch, lane=lane))


def _runner(backend: Backend, log: GroupLog, **rest: Any) -> Runner:
    recorder = recording.recorder
    return Runner(backend, log, **rest) if recorder is None else TracedRunner(recorder, backend, log, **rest)


def _lane(backend: Backend) -> Lane | None:
    """Give a group its way to this rank's GPU, where it serves that."""
    device = device_of(backend.context.device)
    if device is None or "cuda" not in backend.support.devices:
        return None
    return Lane(device, urgent=backend.is_urgent, takes_barriers="cpu" not in backend.support.devices)


def _boot(options: Any) -> Boot:
    """Give the boot that stands, or connect the ranks by the store that torch's first group of all ranks brings."""
    if not _is_current(_current.boot, options):
        size = dist.get_world_size() if options.global_ranks_in_group else options.group_size
        if options.group_size < size:
            raise BackendError(
                "make hpccomm's first group of some ranks only",
                found=f"{options.group_size} of {size} ranks",
                remedy="make the default group, or a group of all ranks, with backend hpccomm first",
                everywhere=True,
            )
        if _current.boot is not None:
            tracing.end()
            _current.boot.close()
        if not _current.takes_leave:
            atexit.register(_take_leave)
            _current.takes_leave = True
        joined = Joined(options.store, options.group_rank, options.group_size)
        _current.boot = boot(os.environ, timeout_s=options.timeout.total_seconds(), joined=joined)
        _current.of_torch = True
    assert _current.boot is not None
    return _current.boot


def _take_leave() -> None:
    """Tell the others of this process's end, where it has destroyed torch's groups and ends well."""
    if guard.is_here and not guard.failed and not dist.is_initialized():
        vigil.leave()


def _is_current(booted: Boot | None, options: Any) -> bool:
    """Tell whether a boot is that of torch's present default group, as far as this process can know."""
    if booted is None or not _current.of_torch:
        return booted is not None
    topology = booted.topology
    present = (dist.get_rank(), dist.get_world_size()) if options.global_ranks_in_group else None
    return present == (topology.rank, topology.world_size)


def control_of(
    name: str, ranks: Sequence[int], booted: Boot, store: Store, *, timeout_s: float, generation: int = 0
) -> Context:
    """Make the context in which a group's backend is agreed upon and built; collective over its ranks."""
    control = booted.context(store, ranks, f"{name}#{generation}" if generation else name, timeout_s)
    control.beside = GroupBeside(name)
    return control


def built(expression: Expression, control: Context) -> Backend:
    """Build a backend on channels of its own; collective over the ranks of `control`.

    Raises:
        HpccommError: The same on all ranks.
    """
    try:
        return together(control.exchange, lambda: _built(expression, control.child("data")))
    except HpccommError as error:
        if error.everywhere and not isinstance(error, (DeadlineError, RankLostError)):  # MPI is at work on none of them
            control.close_parts()
        raise


def _built(expression: Expression, context: Context) -> Backend:
    backend = build(expression, context)
    if not backend.support.devices:
        raise BackendError(
            f"build backend {expression}",
            found="its parts take tensors on no common device",
            remedy="combine backends of host memory, or of GPUs; hierarchical(…) takes one of each",
            everywhere=True,
        )
    return staged(backend, device_of(context.device))


def _as_checked(expression: Expression) -> Expression:
    """Put `checked` around an expression where HPCCOMM_CHECK=1 asks for it."""
    asked = os.environ.get("HPCCOMM_CHECK", "0")
    if asked not in ("0", "1"):
        raise OptionError(
            f"read HPCCOMM_CHECK={asked!r}", found="neither 0 nor 1", remedy="set it to 1, or unset it", everywhere=True
        )
    wrapped = asked == "0" or expression.name in ("checked", "faulty")
    return expression if wrapped else Expression("checked", (expression,))


def destroy_groups() -> None:
    """Destroy all of torch's groups, made last first, and forget the boot."""
    if dist.is_initialized():
        dist.destroy_process_group()
    _current.boot = _current.backend = None


def standing_boot() -> Boot:
    """Give the boot that groups are made from."""
    if _current.boot is None:
        raise WorldError("use hpccomm's groups", found="there are none", remedy="call hpccomm.init first")
    return _current.boot


def default() -> str:
    """Give the backend of a program that names none."""
    return os.environ.get("HPCCOMM_BACKEND") or "auto"


def _face(runner: Runner) -> HpccommProcessGroup | HpccommBackend:
    if not _shares_group(sys._getframe(2).f_locals.get("backend_config")):
        return HpccommProcessGroup(runner, sorted(runner.backend.support.devices))
    if not has_backend_class():
        raise BackendError(
            "make a group with one backend a device",
            found=f"torch {torch.__version__} is before 2.14 and takes no Python backend beside others",
            remedy="use backend='hpccomm' for all devices, or torch 2.14",
            everywhere=True,
        )
    return HpccommBackend(runner)


def _shares_group(config: Any) -> bool:
    """Tell from the caller's backend configuration whether other backends serve other devices of this group."""
    return config is not None and len(set(config.get_device_backend_map().values())) > 1


def _asked(pg_options: object | None) -> str | Expression:
    if pg_options is not None and not isinstance(pg_options, Options):
        raise BackendError(
            f"make a group with pg_options of type {type(pg_options).__name__}",
            found="hpccomm takes hpccomm.Options",
            remedy="pass pg_options=hpccomm.Options(backend='…') or none",
            everywhere=True,
        )
    return pg_options.backend if pg_options is not None else _current.backend or default()
