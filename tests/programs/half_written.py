"""Write half of a file that is to be there whole, say so, and wait to be killed: half_written.py FILE."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hpccomm.whole import whole

with whole(Path(sys.argv[1])) as beside:
    beside.write_text("half")
    print("half", flush=True)
    signal.pause()
