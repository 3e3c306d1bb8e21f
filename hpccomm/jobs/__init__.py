"""Slurm jobs: from typed fields to the text of a batch script, and what the scripts themselves call.

`render` is pure. The files in the top folder ``jobs/`` are what it gives without any field. It imports neither torch
nor MPI, and knows of the benchmark only its options and its results.
"""

from hpccomm.jobs.fields import Fields
from hpccomm.jobs.script import render

__all__ = ["Fields", "render"]
