"""The trial: join the ranks, make a world, add a few numbers with each backend.

It runs as a child of each rank's doctor, ``python -m hpccomm.doctor.trial``, so that whatever hangs or crashes in
torch or MPI takes no answer along. It tells its parent each step before it makes it, a line of JSON each, and stays
until the parent has said what it has to say: the end of a rank that has started MPI may end the whole job.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from hpccomm.errors import HpccommError

if TYPE_CHECKING:
    from hpccomm.bootstrap.world import World
    from hpccomm.exchange import Exchange

PROBE_S = 60.0
IMPORT_S = 180.0  # many ranks on few cores import torch for a minute
GRACE_S = 10.0  # beyond the deadline of what ends by itself
_ELEMENTS, _TIMES = 1024, 5
_PR_SET_PDEATHSIG = 1


class Parent:
    """The doctor that started this process. What libraries print goes to standard error, apart from this."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.stage = "import"

    def begin(self, stage: str, limit_s: float) -> None:
        """Say what comes next, and how long that may take."""
        self.stage = stage
        self.tell(stage=stage, limit_s=limit_s)

    def tell(self, **message: Any) -> None:
        """Send a message."""
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()

    def fail(self, error: BaseException) -> None:
        """Say that the present step failed."""
        self.tell(error=described(error, self.stage))


def described(error: BaseException, stage: str) -> dict[str, str]:
    """Give an error as plain data."""
    if isinstance(error, HpccommError):
        everywhere = "yes" if error.everywhere else ""
        told = {"what": error.asked, "found": error.found, "remedy": error.remedy, "everywhere": everywhere}
    else:
        text = str(error).strip() or "no text"
        told = {"what": f"{type(error).__name__} in the step {stage}", "found": text[:600], "remedy": ""}
    return {"stage": stage, **told}


def main() -> None:
    """Go as far as it goes, then wait for the parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = Parent()
    order = json.loads(sys.stdin.readline())
    failed = False
    try:
        _run(parent, order["sight"], order["timeout_s"])
    except BaseException as error:
        failed = True
        parent.fail(error)
    parent.tell(end=True)
    sys.stdin.read()
    if failed:
        os._exit(0)  # MPI may wait for ever for what failed; else MPICH must see a whole exit, or its mpirun kills all


def _run(parent: Parent, sight: dict[str, Any], timeout_s: float) -> None:
    parent.begin("import", IMPORT_S)
    libraries = _libraries()
    sight["facts"]["libraries"] = libraries
    parent.begin("CUDA", timeout_s + GRACE_S)
    libraries["devices"] = _devices()
    parent.tell(libraries=libraries)
    parent.begin("CUDA-aware MPI", PROBE_S + GRACE_S)
    libraries["cuda_aware"] = _cuda_aware(libraries)
    parent.tell(libraries=libraries)
    parent.begin("join", timeout_s + GRACE_S)
    exchange = _join(timeout_s)
    parent.begin("gather", 3 * timeout_s + GRACE_S)
    sight["rank"] = exchange.rank
    libraries["level"] = _level()
    parent.tell(rank=exchange.rank, size=exchange.size)
    sights = exchange.all_gather(json.dumps(sight), "gather of what each rank saw")
    parent.tell(gathered=True, sights=[json.loads(one) for one in sights] if exchange.rank == 0 else [])
    parent.begin("world", 3 * timeout_s + GRACE_S)
    world = _world(parent, exchange, timeout_s)
    if world is None:
        return
    _measure(parent, world, timeout_s)
    parent.begin("end", timeout_s + GRACE_S)
    world.close()


def _libraries() -> dict[str, Any]:
    """Load torch and the MPI library, and read what they are."""
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else ""  # type: ignore[no-untyped-call]
    found = {"torch": torch.__version__, "cuda": torch.version.cuda or "", "nccl": nccl}
    return {**found, "threads": torch.get_num_threads(), **_mpi_library()}


def _mpi_library() -> dict[str, str]:
    from hpccomm.bootstrap import mpi

    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        return {"mpi": "", "mpi_file": "", "mpi_error": str(error).splitlines()[0]}
    name, version = MPI.get_vendor()
    files = mpi.loaded_libraries()
    return {"mpi": f"{name} {'.'.join(map(str, version))}", "mpi_file": files[0] if files else ""}


def _level() -> str:
    """Give the thread level that MPI granted; empty where MPI has no part."""
    from hpccomm.bootstrap import mpi

    return mpi.describe_library().partition("thread level ")[2]


def _devices() -> int:
    import torch

    return torch.cuda.device_count()


def _cuda_aware(libraries: Mapping[str, Any]) -> str:
    """Say whether MPI takes a GPU's memory; one rank of a host asks. Nothing where there is no GPU or no MPI."""
    from hpccomm.backends.cuda_aware import verdict
    from hpccomm.doctor.look import start

    if not (libraries["devices"] and libraries["mpi"] and start(os.environ).leads_host):
        return ""
    from mpi4py import MPI

    return str(verdict(MPI.Get_library_version().splitlines()[0], os.environ, device="cuda:0"))


def _join(timeout_s: float) -> Exchange:
    """Reach the other ranks, with nothing but what that takes."""
    from hpccomm.bootstrap import mpi
    from hpccomm.bootstrap.boot import first_exchange
    from hpccomm.bootstrap.settings import quiet_s
    from hpccomm.launch import detect

    launch, quiet = detect(os.environ), quiet_s(os.environ)
    communicator = mpi.start(launch, os.environ, timeout_s=timeout_s, quiet_s=quiet)
    return first_exchange(launch, communicator, None, 3 * timeout_s, quiet)[0]


def _world(parent: Parent, exchange: Exchange, timeout_s: float) -> World | None:
    """Make a world as a program would, or have rank 0 tell why that fails; collective."""
    import hpccomm
    from hpccomm import network
    from hpccomm.bootstrap.abort import guard

    world, error = None, None
    try:
        world = hpccomm.init(timeout_s=timeout_s)
    except Exception as failure:
        error = described(failure, "world")
    guard.abort = os._exit  # whatever fails from here on must not end the parents
    errors = exchange.all_gather(error, "gather of errors")
    told: dict[str, dict[str, str]] = {one["what"] + one["found"]: one for one in errors if one is not None}
    if exchange.rank == 0:
        for one in told.values():
            parent.tell(error=one)
    if told or world is None:
        return None
    chosen = network.choose(world.exchange, world.topology.hosts, os.environ.get("HPCCOMM_INTERFACE"))
    addresses = world.exchange.all_gather(chosen.address)
    parent.tell(topology=world.topology.describe(), backend=str(world.backend), addresses=addresses)
    return world


def _measure(parent: Parent, world: World, timeout_s: float) -> None:
    """Add a few numbers with each backend that is worth it here, and with the world's own; collective."""
    from hpccomm.bench import candidates
    from hpccomm.bench.candidates import Candidate

    parent.begin("all_reduce", timeout_s + GRACE_S)
    usual = candidates.defaults(world.topology, has_mpi=bool(_level()))
    found = candidates.different([Candidate(str(world.backend)), *map(Candidate, usual)])
    for candidate in found:
        parent.begin(f"all_reduce over {candidate.expression}", 2 * timeout_s + GRACE_S)
        candidates.build([candidate], timeout_s=timeout_s)
        if candidate.dropped is not None:
            what = f"make a group over {candidate.expression}"
            parent.tell(error={"stage": "all_reduce", "what": what, "found": candidate.dropped, "remedy": ""})
            continue
        try:
            parent.tell(times={candidate.expression: _time(world, candidate)})
        except HpccommError as error:
            parent.fail(error)


def _time(world: World, candidate: Any) -> float:
    """Give the microseconds of one all_reduce: of each repetition the slowest rank, of those the median."""
    import torch
    import torch.distributed as dist

    from hpccomm.errors import BackendError
    from hpccomm.exchange import together

    tensor, times = torch.empty(_ELEMENTS), []

    def repeat() -> None:
        for _ in range(_TIMES):
            tensor.fill_(1)
            begun = time.perf_counter()
            dist.all_reduce(tensor, group=candidate.group)
            times.append((time.perf_counter() - begun) * 1e6)
        if not torch.equal(tensor, torch.full_like(tensor, world.topology.world_size)):
            raise BackendError(
                f"all_reduce of ones over {candidate.expression}",
                found=f"the sum is {tensor[0].item():g} on {world.topology.world_size} ranks",
                remedy="take another backend (HPCCOMM_BACKEND), and report it with this output",
            )

    together(world.exchange, repeat)
    slowest = [max(each) for each in zip(*world.exchange.all_gather(times), strict=True)]
    return float(round(median(slowest), 1))


if __name__ == "__main__":
    main()
