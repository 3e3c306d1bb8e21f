"""Torch's door to hpccomm: the creator that `init_process_group("hpccomm")` and `new_group` call.

The expression comes with `pg_options`, else from the world that stands, else from HPCCOMM_BACKEND, else it is
`auto`. Without a world (a torchrun-style program), the first group boots from the environment and torch's store.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from hpccomm.backends.process_group import NAME, HpccommBackend, HpccommProcessGroup, has_backend_class
from hpccomm.backends.registry import build
from hpccomm.backends.runner import Runner
from hpccomm.bootstrap.boot import Boot, boot
from hpccomm.errors import BackendError, HpccommError
from hpccomm.exchange import agree
from hpccomm.expression import Expression, load

DEVICES = ("cpu",)


@dataclass(frozen=True)
class Options:
    """What `pg_options` tells hpccomm about a group.

    Attributes:
        backend: The group's backend expression.
    """

    backend: str | Expression


class _Current:
    """The boot that new groups are made from, and the expression where a group names none."""

    boot: Boot | None = None
    backend: str | Expression | None = None


current = _Current()


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
        HpccommError: The same on all ranks of the group.
    """
    booted = current.boot
    if booted is None:
        booted = current.boot = boot(os.environ, timeout_s=options.timeout.total_seconds(), store=options.store)
    expression = _expression(pg_options)
    ranks = list(options.global_ranks_in_group) or list(range(booted.topology.world_size))
    name = options.group_id or "world"
    control = booted.context(options.store, ranks, name)
    control.timeout_s = options.timeout.total_seconds()
    runner: Runner | None = None
    error: Exception | None = None
    try:
        runner = Runner(build(expression, control.child("data")), name=name, crowded=booted.crowded)
    except (HpccommError, RuntimeError) as caught:
        error = caught
    agree(control.exchange, error)
    control.close()
    assert runner is not None
    return _face(runner)


def destroy_groups() -> None:
    """Destroy all of torch's groups, made last first, and forget the boot."""
    if dist.is_initialized():
        dist.destroy_process_group()
    current.boot = current.backend = None


def _face(runner: Runner) -> HpccommProcessGroup | HpccommBackend:
    if not _shares_group(sys._getframe(2).f_locals.get("backend_config")):
        return HpccommProcessGroup(runner, DEVICES)
    if not has_backend_class():
        raise BackendError(
            "make a group with one backend a device",
            found=f"torch {dist.__name__} before 2.14 takes no Python backend beside others",
            remedy="use backend='hpccomm' for all devices, or torch 2.14",
            everywhere=True,
        )
    return HpccommBackend(runner)


def _shares_group(config: Any) -> bool:
    """Tell from the caller's backend configuration whether other backends serve other devices of this group."""
    return config is not None and len(set(config.get_device_backend_map().values())) > 1


def _expression(pg_options: object | None) -> Expression:
    if pg_options is not None and not isinstance(pg_options, Options):
        raise BackendError(
            f"make a group with pg_options of type {type(pg_options).__name__}",
            found="hpccomm takes hpccomm.Options",
            remedy="pass pg_options=hpccomm.Options(backend='…') or none",
            everywhere=True,
        )
    backend = pg_options.backend if pg_options is not None else current.backend
    if backend is None:
        backend = os.environ.get("HPCCOMM_BACKEND") or "auto"
    return backend if isinstance(backend, Expression) else load(backend)
