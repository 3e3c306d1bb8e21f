"""Names that the kernel grants once on a host, for as long as the process that has one lives."""

from __future__ import annotations

import socket


def claim(name: str) -> socket.socket | None:
    """Take a name.

    Args:
        name: At most 100 characters; all users of the host can see it.

    Returns:
        What holds the name until it is closed, or None where another process has it.
    """
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0{name}")
    except OSError:
        mark.close()
        return None
    return mark
