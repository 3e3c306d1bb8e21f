"""Who shares a node with whom, from the node identities that all ranks gathered.

It knows neither MPI nor torch nor launchers, and never computes a node from rank arithmetic.
"""

from hpccomm.topology.identity import NodeIdentity, identify
from hpccomm.topology.resolve import resolve
from hpccomm.topology.topology import Topology

__all__ = ["NodeIdentity", "Topology", "identify", "resolve"]
