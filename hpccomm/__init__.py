"""hpccomm: torch process groups over MPI, NCCL, Gloo and shared memory, as one hierarchy.

Importing it starts nothing: no MPI, no torch, no environment writes. `init` starts the ranks' world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpccomm.lazy import finder

if TYPE_CHECKING:
    from hpccomm.bootstrap.init import init
    from hpccomm.bootstrap.plugin import Options
    from hpccomm.bootstrap.world import World
    from hpccomm.transport_options import GlooOptions, NcclOptions

__version__ = "0.1.0"
__all__ = ["GlooOptions", "NcclOptions", "Options", "World", "init"]

__getattr__ = finder(
    __name__,
    {
        "GlooOptions": "hpccomm.transport_options",
        "NcclOptions": "hpccomm.transport_options",
        "Options": "hpccomm.bootstrap.plugin",
        "World": "hpccomm.bootstrap.world",
        "init": "hpccomm.bootstrap.init",
    },
)
