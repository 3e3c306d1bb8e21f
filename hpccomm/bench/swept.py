"""One rank of a child job of ``--sweep``: ``python -m hpccomm.bench.swept``, with the options on standard input."""

from __future__ import annotations

import os
import pickle
import sys

from hpccomm.bench.__main__ import leave, run
from hpccomm.bench.options import Options
from hpccomm.launch import detect


def main() -> int:
    """Measure what the sweep asks for."""
    options = pickle.load(sys.stdin.buffer)
    assert isinstance(options, Options)
    return run(options, detect(os.environ), command_line="python -m hpccomm.bench --sweep")


if __name__ == "__main__":
    leave(main())
