"""Settings from the environment: which there are, and that all ranks have the same.

A variable set in a shell reaches the first host only under some launchers; ranks that then disagree would hang or
mix algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

from hpccomm.errors import OptionError
from hpccomm.rollcall import QUIET_S

PREFIX = "HPCCOMM_"
RANK_PID = "HPCCOMM_RANK_PID"  # process id of the rank, for its children to see that they are none
KNOWN = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "BACKEND",
        "CHECK",
        "CUDA_AWARE",
        "FLIGHT_DIR",
        "INTERFACE",
        "MAX_COUNT",
        "NODE_ID",
        "QUIET_S",
        "RANKS_PER_NODE",
        "RANK_PID",
        "SINGLETON",
        "STORE_PORT",
        "SWITCH_ID",
        "TRACE",
        "TUNING",
    )
)
_FOR_TESTS = f"{PREFIX}TEST_"
OF_ONE_RANK = frozenset({"HPCCOMM_NODE_ID", "HPCCOMM_SWITCH_ID", RANK_PID})


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that must be equal on all ranks, with those that nobody knows."""
    ours = [name for name in environ if name.startswith(PREFIX) and not name.startswith(_FOR_TESTS)]
    return {name: environ[name] for name in ours if name not in OF_ONE_RANK}


def check_equal(gathered: Sequence[Mapping[str, str]]) -> None:
    """Compare all ranks' settings.

    Raises:
        OptionError: The same on all ranks: a variable differs, the text says who has what; or nobody knows it.
    """
    refuse_differences(gathered, "export {name} on all hosts (mpirun -x {name}, mpiexec -genv, or srun --export=ALL)")
    unknown = sorted({name for one in gathered for name in one} - KNOWN)
    if unknown:
        raise OptionError(
            f"read {', '.join(unknown)}",
            found="hpccomm has no such setting",
            remedy=f"unset it; there are {', '.join(sorted(KNOWN))}",
            everywhere=True,
        )


def refuse_differences(gathered: Sequence[Mapping[str, str]], remedy: str) -> None:
    """Compare variables of all ranks.

    Args:
        gathered: What each rank has.
        remedy: What to do about one that differs, with ``{name}`` for its name.

    Raises:
        OptionError: The same on all ranks: one differs; the text says who has what.
    """
    for name in sorted({name for one in gathered for name in one}):
        holders: dict[str | None, list[int]] = {}
        for rank, one in enumerate(gathered):
            holders.setdefault(one.get(name), []).append(rank)
        if len(holders) > 1:
            raise OptionError(
                f"read {name}, which must be equal on all ranks",
                found="; ".join(f"{_value(value)} on {_ranks(ranks)}" for value, ranks in holders.items()),
                remedy=remedy.format(name=name),
                everywhere=True,
            )


def port_asked(environ: Mapping[str, str]) -> int:
    """Read HPCCOMM_STORE_PORT; 0 where it is unset.

    Raises:
        OptionError: It is no port number.
    """
    text = environ.get("HPCCOMM_STORE_PORT") or "0"
    if not text.isdecimal() or int(text) > 65535:
        raise OptionError(
            f"read HPCCOMM_STORE_PORT={text!r}",
            found="no port number",
            remedy="give a number up to 65535, or leave it unset",
            everywhere=True,
        )
    return int(text)


def quiet_s(environ: Mapping[str, str]) -> float:
    """Read HPCCOMM_QUIET_S, the seconds of waiting after which ranks say who is missing.

    Raises:
        OptionError: It is no number of seconds above 0.
    """
    text = environ.get("HPCCOMM_QUIET_S") or str(QUIET_S)
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise OptionError(
        f"read HPCCOMM_QUIET_S={text!r}",
        found="no number of seconds above 0",
        remedy="give one, e.g. 30, or leave it unset",
        everywhere=True,
    )


def _value(value: str | None) -> str:
    return "unset" if value is None else repr(value)


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{' …' if len(ranks) > 8 else ''}"
