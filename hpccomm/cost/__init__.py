"""Cost of schedules: how many seconds one takes on a described machine, before it is run there.

A message of n bytes takes alpha + n·beta over its link (Hockney's model): alpha in seconds, beta in seconds per byte.
A rank sends one message at a time and receives one at a time, both ways at once; a reduction costs gamma seconds per
byte; all ranks of a node share what it can inject into the network. It knows no tensor, library or clock.
"""

from hpccomm.cost.fabric import Fabric, Link, fit
from hpccomm.cost.prediction import predict
from hpccomm.cost.simulation import simulate

__all__ = ["Fabric", "Link", "fit", "predict", "simulate"]
