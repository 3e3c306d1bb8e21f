"""Whether the user sees a terminal: the launcher's, as a rank's own streams tell nothing of it.

Under MPI launchers a rank's standard error is a pipe, and its standard output a pipe or always a pseudo-terminal.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROXIES = ("hydra", "pmi_proxy")  # stand between a rank and its launcher


def is_terminal(descriptor: int, *, has_launcher: bool) -> bool:
    """Tell whether output to stream 1 or 2 reaches a terminal.

    Args:
        descriptor: 1 or 2.
        has_launcher: Whether an MPI launcher passes this process's output on.
    """
    if not has_launcher:
        return os.isatty(descriptor)
    try:
        return _target(_launcher(), descriptor).startswith(("/dev/pts/", "/dev/tty"))
    except (OSError, ValueError):  # it ended, belongs to somebody else, or is no Linux process
        return False


def _launcher() -> int:
    parent = os.getppid()
    if not Path(f"/proc/{parent}/comm").read_text().startswith(_PROXIES):
        return parent
    status = Path(f"/proc/{parent}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])


def _target(pid: int, descriptor: int) -> str:
    return str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
