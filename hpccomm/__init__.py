"""hpccomm: torch process groups over MPI, NCCL, Gloo and shared memory, as one hierarchy.

Importing it starts nothing: no MPI, no torch, no environment writes. `init` starts the ranks' world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpccomm.bootstrap.plugin import Options
    from hpccomm.bootstrap.world import World, init

__version__ = "0.1.0"
__all__ = ["Options", "World", "init"]

_HOMES = {
    "Options": "hpccomm.bootstrap.plugin",
    "World": "hpccomm.bootstrap.world",
    "init": "hpccomm.bootstrap.world",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
