"""Numbers in environment variables, and the errors that name the variable to change.

Knows no launcher.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpccomm.errors import LaunchError

ASKED = "find out how this process was started"


def launch_error(asked: str, *, found: str, remedy: str) -> LaunchError:
    """Make the error of a wrong start; all ranks were started alike, so all have it."""
    return LaunchError(asked, found=found, remedy=remedy, everywhere=True)


def number(environ: Mapping[str, str], name: str) -> int | None:
    """Read a count or rank; None if the variable is unset or empty.

    Raises:
        LaunchError: The value is no whole number from 0 to 999999999.
    """
    value = environ.get(name)
    if not value:
        return None
    if not re.fullmatch("[0-9]{1,9}", value):
        raise _malformed(name, value)
    return int(value)


def number_of_node(environ: Mapping[str, str], name: str, node_rank: str) -> int | None:
    """Read one node's number from Slurm's list of all nodes' numbers (``2(x3),1``: three times 2, then 1).

    Args:
        environ: The variables.
        name: The variable with the list.
        node_rank: The variable with the node's place in the list.

    Returns:
        None if a variable is unset or the list too short.

    Raises:
        LaunchError: The list or the place is malformed.
    """
    value, place = environ.get(name), number(environ, node_rank)
    if not value or place is None:
        return None
    for part in value.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?", part)
        if match is None:
            raise _malformed(name, value)
        place -= int(match[2] or 1)
        if place < 0:
            return int(match[1])
    return None


def switch(environ: Mapping[str, str], name: str) -> bool:
    """Read a variable that is 1 for yes, 0, empty or unset for no.

    Raises:
        LaunchError: Any other value.
    """
    value = environ.get(name) or "0"
    if value not in ("0", "1"):
        raise launch_error(ASKED, found=f"{name}={value!r}", remedy=f"set {name} to 1 or 0, or unset it")
    return value == "1"


def agree(one: int | None, other: int | None) -> bool:
    """Tell whether two numbers do not contradict each other; None contradicts nothing."""
    return one is None or other is None or one == other


def refuse_rank_outside(rank_name: str, rank: int | None, size_name: str, size: int | None) -> None:
    """Raise a LaunchError if a rank is not less than its size."""
    if rank is not None and size is not None and rank >= size:
        raise launch_error(
            ASKED,
            found=f"{rank_name}={rank}, which is not below {size_name}={size}",
            remedy=f"unset {rank_name} and {size_name}, or correct the script that exports them",
        )


def _malformed(name: str, value: str) -> LaunchError:
    return launch_error(
        ASKED,
        found=f"{name}={value[:80]!r} where a number is expected",
        remedy=f"unset {name}, or correct the script that exports it",
    )
