"""Tell from environment variables which launcher started this process, and refuse contradictions.

The variables are hints: they choose how to start and cross-check the start; MPI's own rank and size are the
truth. Imports neither mpi4py nor torch: what they say comes in as arguments.
"""

from hpccomm.launch.checks import check_library, check_world
from hpccomm.launch.detection import Launch, detect, launcher_of
from hpccomm.launch.launchers import ALONE, LAUNCHERS, Launcher

__all__ = ["ALONE", "LAUNCHERS", "Launch", "Launcher", "check_library", "check_world", "detect", "launcher_of"]
