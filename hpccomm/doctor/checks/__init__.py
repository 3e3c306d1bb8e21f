"""The checks, in the order in which they are shown: a file each, none of which knows another."""

from hpccomm.doctor.checks import (
    attach,
    cores,
    gpus,
    interfaces,
    libraries,
    limits,
    memory,
    names,
    ports,
    process,
    sessions,
    slurm,
    software,
    trial,
)
from hpccomm.doctor.checks.check import Check, Line

CHECKS: tuple[Check, ...] = tuple(
    module.CHECK
    for module in (
        trial,
        process,
        software,
        libraries,
        gpus,
        slurm,
        ports,
        names,
        interfaces,
        cores,
        limits,
        memory,
        sessions,
        attach,
    )
)

__all__ = ["CHECKS", "Check", "Line"]
