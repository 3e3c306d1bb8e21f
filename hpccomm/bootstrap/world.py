"""The public face: `init` makes a `World` of torch process groups, `World.close` takes it down in order."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

import torch
import torch.distributed as dist

from hpccomm.backends.process_group import NAME
from hpccomm.backends.select import choose
from hpccomm.bootstrap import environment, plugin
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.agreement import agreed
from hpccomm.bootstrap.boot import Boot, boot, enter
from hpccomm.bootstrap.renewal import renew
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import HpccommError, WorldError
from hpccomm.exchange import Exchange
from hpccomm.expression import Expression
from hpccomm.topology import Topology

T = TypeVar("T")


def init(backend: str | Expression | None = None, *, timeout_s: float = 120.0, port: int = 0) -> World:
    """Connect this process with the others of its job and make torch's process groups; collective.

    Works under mpirun, srun, torchrun, and alone. From here on torch.distributed's own functions communicate, on
    the default group, `World.intra_node` and `World.inter_node`.

    Args:
        backend: A backend expression, ``@file`` to read one, or None: then HPCCOMM_BACKEND, else ``auto``.
        timeout_s: Deadline in seconds of the start-up and of every operation that is given none.
        port: The store's port on rank 0's host; 0 takes HPCCOMM_STORE_PORT, else lets the kernel choose.

    Returns:
        The world; a context manager that closes it.

    Raises:
        HpccommError: The same on all ranks; its kind says what does not fit.
    """
    enter(os.environ)
    if dist.is_initialized():
        raise WorldError(
            "start hpccomm",
            found="torch.distributed is initialised already",
            remedy="close the world that stands, or call torch.distributed.destroy_process_group()",
            everywhere=True,
        )
    booted = boot(os.environ, timeout_s=timeout_s, port=port)
    try:
        expression = agreed(booted.exchange, lambda: plugin.default() if backend is None else backend)
    except HpccommError:
        booted.close()
        raise
    return World(booted, expression)


class World:
    """The ranks of a job and their groups.

    Attributes:
        topology: Ranks, nodes and hosts; printable.
        device: Where this rank's tensors live.
        backend: The expression of the backend of `group`, with `auto` resolved.
    """

    def __init__(self, booted: Boot, expression: Expression) -> None:
        self._boot = booted
        self._closed = False
        self.topology: Topology = booted.topology
        self.device = torch.device("cpu")
        plugin.make_groups_from(booted, expression)
        self._environment = environment.export(booted)
        atexit.register(self.close)
        plugin.register()
        try:
            self._make_groups(expression)
        except BaseException:
            self._take_down()
            raise
        self.backend = _backend_of(self._group)
        self._backend_notes = tuple(self._group._runner.backend.notes)  # type: ignore[attr-defined]
        reason = choose(self.topology, has_mpi=booted.communicator is not None)[1]
        self._reason = f" (auto: {reason})" if expression.name == "auto" else ""

    def _make_groups(self, expression: Expression) -> None:
        topology = self.topology
        dist.init_process_group(
            NAME,
            store=self._boot.store,
            rank=topology.rank,
            world_size=topology.world_size,
            timeout=self._boot.timeout,
            pg_options=plugin.Options(expression),
        )
        self._group = cast(dist.ProcessGroup, dist.group.WORLD)
        inside, across = _legs(expression)
        self._intra_node = self._own(topology.all_intra_node(), inside)
        self._inter_node = self._own(topology.all_inter_node(), across)

    def _own(self, groups: tuple[tuple[int, ...], ...], expression: Expression) -> dist.ProcessGroup:
        """Make all groups, in one order on every rank, and give the one that holds this rank."""
        options = plugin.Options(expression)
        made = [dist.new_group(list(ranks), backend=NAME, pg_options=options) for ranks in groups]
        (own,) = (group for group in made if isinstance(group, dist.ProcessGroup))
        return own

    def _while_open(self, part: T) -> T:
        if self._closed:
            raise WorldError(
                "use a group or the exchange of a world", found="it is closed", remedy="call hpccomm.init again"
            )
        return part

    @property
    def group(self) -> dist.ProcessGroup:
        """All ranks; torch's default group."""
        return self._while_open(self._group)

    @property
    def intra_node(self) -> dist.ProcessGroup:
        """The ranks of this node."""
        return self._while_open(self._intra_node)

    @property
    def inter_node(self) -> dist.ProcessGroup:
        """The ranks with this local rank, one a node."""
        return self._while_open(self._inter_node)

    @property
    def exchange(self) -> Exchange:
        """Exchange of small Python objects among all ranks, apart from the groups' traffic."""
        return self._while_open(self._boot.exchange)

    @property
    def crowded(self) -> bool:
        """Whether more ranks than usable cores share this host."""
        return self._boot.crowded

    @property
    def fell_back(self) -> tuple[str, ...]:
        """Each change from one backend to another that `failover` has made in `group`."""
        return tuple(self.group._runner.backend.fell_back)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        boot = self._boot
        return (
            f"{self.topology}\nlauncher {boot.launch.launcher.name}, MPI {boot.mpi_library}, "
            f"torch {torch.__version__}\nbackend {self.backend}{self._reason}"
            + "".join(f"\nnote: {note}" for note in (*boot.launch.notes, *self.topology.notes, *self._backend_notes))
        )

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif isinstance(error, SystemExit):
            self._exit(error)

    def _exit(self, error: SystemExit) -> None:
        """Close at the exit of a success; have the guard watch over that of a failure, which may yet be caught."""
        if error.code:
            guard.exit(error.code)
        self.close()

    def write_flight_record(self, folder: str | Path | None = None) -> Path | None:
        """Write what this rank's groups did last, for ``python -m hpccomm.doctor --flight``.

        Args:
            folder: Where to; None for HPCCOMM_FLIGHT_DIR, else a folder of this job under the temporary one.

        Returns:
            The file ``rank<N>.json``, or None where it cannot be written.
        """
        return vigil.write_flight("asked for", None if folder is None else Path(folder))

    def renew(self) -> None:
        """Give the world's three groups new backends, e.g. after a deadline has passed; collective.

        The groups stay the objects they are, so that whatever holds them (DDP, a DeviceMesh) goes on with them. What
        was under way fails.

        Raises:
            DeadlineError: Ranks did not come within the world's deadline; the text says which.
            HpccommError: A backend cannot be built again; the same on all ranks.
        """
        for group in (self.group, self.intra_node, self.inter_node):
            renew(group)

    def close(self) -> None:
        """Wait for all ranks, destroy the groups, inner ones first, and give back the environment.

        A second call does nothing. A rank that waits for others longer than the world's deadline says so and goes
        on alone. After an uncaught error it does not wait.
        """
        if self._closed or os.getpid() != self._boot.pid:
            return
        if not guard.failed and not self._boot.barrier():
            print(
                f"hpccomm: rank {self.topology.rank} closes its world alone: the other ranks did not close theirs "
                f"within {self._boot.timeout_s:g} s",
                file=sys.stderr,
                flush=True,
            )
        self._take_down()

    def _take_down(self) -> None:
        self._closed = True
        atexit.unregister(self.close)
        plugin.destroy_groups()
        environment.restore(self._environment)
        self._boot.close()


def _legs(expression: Expression) -> tuple[Expression, Expression]:
    """Give the expressions of the groups inside and across nodes."""
    if expression.name == "hierarchical":
        inside, across = expression.arguments
        return inside, across
    return expression, expression


def _backend_of(group: dist.ProcessGroup) -> str:
    return str(group._runner.expression)  # type: ignore[attr-defined]
