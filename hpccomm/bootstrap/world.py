"""The public face: a `World` of torch process groups, which `init` makes and `World.close` takes down in order."""

from __future__ import annotations

import atexit
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import torch
import torch.distributed as dist

from hpccomm.backends.select import choose
from hpccomm.bootstrap import environment, plugin, tracing
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.assembly import Assembly
from hpccomm.bootstrap.connect import Boot
from hpccomm.bootstrap.groups import make_groups
from hpccomm.bootstrap.libraries import notes
from hpccomm.bootstrap.renewal import renew
from hpccomm.bootstrap.shrinking import shrink
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import WorldError
from hpccomm.exchange import Exchange
from hpccomm.expression import Expression
from hpccomm.topology import Topology
from hpccomm.watch.flight import flight
from hpccomm.watch.patrol import say

T = TypeVar("T")


class World:
    """The ranks of a job and their groups.

    Attributes:
        topology: Ranks, nodes and hosts; printable.
        device: This rank's GPU, torch's current device from here on; the CPU where it sees no GPU.
        backend: The expression of the backend of `group`, with `auto` resolved.
    """

    def __init__(self, booted: Boot, expression: Expression, settings: dict[str, str]) -> None:
        self._asked, self._settings, self._settings_notes = expression, settings, notes(settings)
        self._closed = False
        self._environment: environment.Saved = {}
        self._losses: list[str] = []
        self._fell_back: tuple[str, ...] = ()
        self.device = booted.device
        atexit.register(self.close)
        plugin.register()
        try:
            self._build(booted)
        except BaseException:
            self._take_down()
            raise

    def _build(self, booted: Boot) -> None:
        """Make the groups of ranks that are connected; collective."""
        self._boot = booted
        self._assembly = Assembly(booted.communicator, booted.timeout_s) if booted.survives else None
        self.topology: Topology = booted.topology
        plugin.make_groups_from(booted, self._asked)
        self._environment = environment.export(booted) | environment.set_all(self._settings)
        self._groups = make_groups(booted, self._asked)
        runner = self._groups.all_ranks._runner  # type: ignore[attr-defined]
        self.backend = str(runner.expression)
        self._notes = [*runner.backend.notes, *self._losses]
        reason = choose(self.topology, has_mpi=booted.communicator is not None)[1]
        self._reason = f" (auto: {reason})" if self._asked.name == "auto" else ""

    def _while_open(self, part: T) -> T:
        if self._closed:
            raise WorldError(
                "use a group or the exchange of a world", found="it is closed", remedy="call hpccomm.init again"
            )
        return part

    @property
    def group(self) -> dist.ProcessGroup:
        """All ranks; torch's default group."""
        return self._while_open(self._groups.all_ranks)

    @property
    def intra_node(self) -> dist.ProcessGroup:
        """The ranks of this node."""
        return self._while_open(self._groups.intra_node)

    @property
    def inter_node(self) -> dist.ProcessGroup:
        """The ranks with this local rank, one a node."""
        return self._while_open(self._groups.inter_node)

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
        """Each change from one backend to another that `failover` has made in `group`, also before it was made anew."""
        return (*self._fell_back, *self.group._runner.backend.fell_back)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        boot = self._boot
        return (
            f"{self.topology}\nlauncher {boot.launch.launcher.name}, MPI {boot.mpi_library}, "
            f"torch {torch.__version__}\nbackend {self.backend}{self._reason}"
            + (f"\ndevice {self.device}, {boot.binding.name}" if boot.binding is not None else "")
            + "".join(f"\nnote: {note}" for note in self._all_notes())
        )

    def _all_notes(self) -> list[str]:
        said = (*self._boot.launch.notes, *self.topology.notes, *self._notes, *self._settings_notes)
        return [note for note in (*said, self.device_note) if note]

    @property
    def device_note(self) -> str:
        """Which ranks of this host share this rank's GPU, in words; nothing where it has one of its own."""
        return self._boot.binding.note if self._boot.binding is not None else ""

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
        before = self.fell_back
        renew(self.group)
        self._fell_back = before
        for group in (self.intra_node, self.inter_node):
            renew(group)

    @property
    def lost(self) -> tuple[int, ...]:
        """The ranks that have died since the world stands or was shrunk, as far as this rank knows by now."""
        self._while_open(None)
        vigil.lost()
        return tuple(sorted(vigil.lost_ranks))

    def agree(self, well: bool = True) -> bool:
        """Tell whether all ranks have come here well, and none has died; alike on all that are left; collective.

        It is the only way to know that what one rank has got, e.g. the gradients of a step, all others have got too:
        a rank's death may end a collective well on some ranks and badly on others.

        Args:
            well: Whether this rank is.

        Returns:
            True, or False, after which `shrink` must follow.

        Raises:
            WorldError: The world does not outlive its ranks.
            DeadlineError: Ranks that have not died did not come within the world's deadline.
        """
        return self._surviving().agree(well)

    def shrink(self) -> tuple[int, ...]:
        """Go on without the ranks that have died; collective over those that are left.

        The world stays the object that it is, with fewer ranks, numbered anew in their order, and new groups: torch's
        default group, `intra_node` and `inter_node`. Everything made of the old ones is dead: groups of one's own,
        DeviceMeshes, and DDP, which must be made anew around its module. A rank that dies meanwhile is left out too;
        where one stops while MPI itself shrinks, the job ends at the world's deadline.

        Returns:
            The former numbers of the ranks that were lost.

        Raises:
            WorldError: The world does not outlive its ranks.
            DeadlineError: Ranks that have not died did not come within the world's deadline.
            HpccommError: The backend cannot be built with the ranks that are left.
        """
        assembly = self._surviving()
        vigil.write_flight("ranks were lost")
        before = self.fell_back
        lost, text = shrink(self._boot, assembly, self._build, self._leave)
        self._fell_back = before
        self._losses.append(text)
        self._notes.append(text)
        self.group._runner.log.notes.append(text)  # type: ignore[attr-defined]
        if self.topology.rank == 0:
            say(text)
        return lost

    def _surviving(self) -> Assembly:
        assembly = self._while_open(self._assembly)
        if assembly is None:
            raise WorldError(
                "go on without the ranks that have died",
                found="this world ends with any of its ranks",
                remedy='call hpccomm.init(on_lost_rank="shrink") under mpirun --with-ft ulfm',
                everywhere=True,
            )
        return assembly

    def close(self) -> None:
        """Wait for all ranks, destroy the groups, inner ones first, and give back the environment.

        A second call does nothing. A rank that waits for others longer than the world's deadline says so and goes
        on alone. After an uncaught error it does not wait.
        """
        if self._closed or os.getpid() != self._boot.pid:
            return
        came = not guard.failed and not vigil.lost() and self._boot.barrier()
        if not came and not guard.failed and not vigil.lost():
            print(
                f"hpccomm: rank {self.topology.rank} closes its world alone: the other ranks did not close theirs "
                f"within {self._boot.timeout_s:g} s",
                file=sys.stderr,
                flush=True,
            )
        self._take_down(came=came)

    def _take_down(self, *, came: bool = False) -> None:
        """Destroy all; where all ranks have come to that, their trace is whole."""
        self._closed = True
        atexit.unregister(self.close)
        self._destroy_groups()
        tracing.end(well=came)
        self._boot.close()

    def _leave(self) -> None:
        """Take the groups and the watch down, to be built anew; nothing that is under way is waited for."""
        for log in list(flight.logs.values()):
            log.why_dead = log.why_dead or "the world shrinks"
        self._destroy_groups()
        vigil.leave(tells=False)
        flight.logs.clear()

    def _destroy_groups(self) -> None:
        plugin.destroy_groups()
        environment.restore(self._environment)
        self._environment = {}
