"""The public face: `init` connects the ranks of a job and makes their `World`."""

from __future__ import annotations

import os

import torch.distributed as dist

from hpccomm.bootstrap import plugin
from hpccomm.bootstrap.agreement import agreed
from hpccomm.bootstrap.boot import boot, enter
from hpccomm.bootstrap.libraries import agreed_settings
from hpccomm.bootstrap.world import World
from hpccomm.errors import HpccommError, OptionError, WorldError
from hpccomm.expression import Expression
from hpccomm.transport_options import GlooOptions, NcclOptions


def init(
    backend: str | Expression | None = None,
    *,
    timeout_s: float = 120.0,
    port: int = 0,
    on_lost_rank: str = "abort",
    nccl: NcclOptions | None = None,
    gloo: GlooOptions | None = None,
) -> World:
    """Connect this process with the others of its job and make torch's process groups; collective.

    Works under mpirun, srun, torchrun, and alone. From here on torch.distributed's own functions communicate, on
    the default group, `World.intra_node` and `World.inter_node`.

    Args:
        backend: A backend expression, ``@file`` to read one, or None: then HPCCOMM_BACKEND, else ``auto``.
        timeout_s: Deadline in seconds of the start-up and of every operation that is given none.
        port: The store's port on rank 0's host; 0 takes HPCCOMM_STORE_PORT, else lets the kernel choose.
        on_lost_rank: What becomes of the others when a rank's process is killed or ends without a word: ``abort`` ends
            them, ``shrink`` lets them go on by `World.shrink`. That needs Open MPI's ``mpirun --with-ft ulfm`` and
            MPI not started before; elsewhere it is refused. An exception that nothing catches ends all ranks in any
            case, and so does the loss of a whole host.
        nccl: NCCL's settings while the world stands, on all ranks alike; what NCCL has read before keeps its value.
        gloo: Those of torch's own Gloo groups likewise.

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
    if on_lost_rank not in ("abort", "shrink"):
        raise OptionError(
            f"start hpccomm with on_lost_rank={on_lost_rank!r}",
            found="no such way",
            remedy="give abort or shrink",
            everywhere=True,
        )
    booted = boot(os.environ, timeout_s=timeout_s, port=port, survives=on_lost_rank == "shrink")
    try:
        expression = agreed(booted.exchange, lambda: plugin.default() if backend is None else backend)
        settings = agreed_settings(booted.exchange, [options for options in (nccl, gloo) if options is not None])
    except HpccommError:
        booted.close()
        raise
    return World(booted, expression, settings)
