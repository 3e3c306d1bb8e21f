"""Rules of where ranks are, and of what carries them."""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.bench.page.advice.rule import Advice
from hpccomm.bench.page.runs import Run
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

AHEAD = 1.2
RAIL = 0.5


def crowded(run: Run) -> Iterator[Advice]:
    """Name the host with the most ranks a core."""
    crowded = [host for host in run.hosts if host.is_oversubscribed]
    if crowded:
        worst = max(crowded, key=lambda host: host.ranks / max(host.cores, 1))
        others = f"; {len(crowded)} of {count(len(run.hosts), 'host')} have more ranks than cores" * (len(crowded) > 1)
        yield Advice(
            f"{worst.name} has {worst.ranks} ranks on {count(worst.cores, 'core')}" + others,
            "times include waiting for a core",
            "start at most as many ranks as cores, or give the job more cores (Slurm: --cpus-per-task)",
        )


def one_host(run: Run) -> Iterator[Advice]:
    """Say what such a run does not tell of."""
    if len(run.hosts) == 1 and len(run.node_of_rank) > 1:
        virtual = len({*run.node_of_rank}) > 1
        yield Advice(
            f"all ranks are on {run.hosts[0].name}" + ", cut into virtual nodes" * virtual,
            "MPI goes through memory and Gloo over loopback: nothing here tells of a network or of hierarchies over it",
            "measure on two hosts or more",
        )


def without_mpi(run: Run) -> Iterator[Advice]:
    """Leave out a run of one rank."""
    if run.environment.get("mpi") == "none" and len(run.node_of_rank) > 1:
        yield Advice(
            "MPI does not join the ranks",
            "only Gloo was there to choose, which uses TCP alone",
            "start with mpirun or srun --mpi=pmix; run python -m hpccomm.doctor, which says what is in the way",
        )


def gloo_ahead(run: Run) -> Iterator[Advice]:
    """Between hosts TCP should not beat an MPI that uses the network as it is meant to be used."""
    for table in run.tables if len(run.hosts) > 1 else ():
        size, times = table.largest
        if {"gloo", "mpi4py"} <= times.keys() and times["mpi4py"] > AHEAD * times["gloo"]:
            yield Advice(
                f"{table.full_title}: gloo is {times['mpi4py'] / times['gloo']:.2g} times as fast as mpi4py at "
                f"{format_bytes(size)}",
                "MPI may not use the fast network, or only one of several interfaces",
                "see which transport MPI takes (Open MPI: --mca pml_base_verbose 10, UCX_TLS; MPICH: FI_PROVIDER)",
            )


def on_one_core(run: Run) -> Iterator[Advice]:
    """Leave out ranks that share cores, of which `crowded` tells."""
    is_shared = any(host.is_oversubscribed for host in run.hosts)
    if run.environment.get("fewest_cores") == 1 and len(run.node_of_rank) > 1 and not is_shared:
        yield Advice(
            "a rank may use 1 core alone",
            "asynchronous operations, Gloo and DDP work in threads beside the program, and wait for that core",
            "bind ranks to more cores (Open MPI: --map-by slot:PE=2, Slurm: --cpus-per-task=2), or to none "
            "(--bind-to none)",
        )


def gloo_on_gpus(run: Run) -> Iterator[Advice]:
    """Tell of the largest size of each table."""
    for table in run.tables if run.environment.get("device") == "cuda" else ():
        size, times = table.largest
        if "gloo" in times:
            others = f", {times['gloo'] / min(times.values()):.2g} times the fastest" if len(times) > 1 else ""
            yield Advice(
                f"{table.full_title}: gloo takes {format_us(times['gloo'])} us at {format_bytes(size)} of GPUs' "
                f"memory{others}",
                "Gloo sends from host memory: what is on GPUs is copied there and back",
                "take nccl, or nccl inside hosts: hierarchical(nccl, mpi4py)",
            )


def one_rail(run: Run) -> Iterator[Advice]:
    """Count the networks of all hosts that are about as fast as the one that is used."""
    used, speeds = run.environment.get("network"), dict(run.environment.get("networks", {}))
    rails = [name for name, speed in speeds.items() if name == used or speed >= RAIL * speeds.get(used, 0)]
    if used in speeds and len(rails) > 1 and any("gloo" in name for table in run.tables for name in table.backends):
        idle = ", ".join(name for name in rails if name != used)
        yield Advice(
            f"Gloo uses {used}, one of {len(rails)} networks that join all hosts; it leaves {idle} idle",
            "a rank's Gloo is bound to one address, and so to one link of its host",
            "take MPI between hosts, which may use all of them (hierarchical(shm, mpi4py)), bond the links, or name "
            "the best one in HPCCOMM_INTERFACE",
        )
