"""Start with a port that is taken, given as an argument and then, for good, by the environment."""

from __future__ import annotations

import os
import sys

import hpccomm
from hpccomm.errors import NetworkError

port = int(sys.argv[1])
try:
    hpccomm.init(port=port)
except NetworkError as error:
    assert f"port {port}" in str(error)
    print("refused\n", end="", flush=True)
os.environ["HPCCOMM_STORE_PORT"] = str(port)
hpccomm.init()
