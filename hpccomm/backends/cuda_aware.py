"""Whether the MPI library takes addresses of a GPU's memory, found out by trying it in a child process.

What a library was built with says little: support may be switched off, or be there for some calls only. The answer
holds for a library on a host and is kept in a file there. HPCCOMM_CUDA_AWARE=1 or 0 says it instead. No MPI is loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import Signals

from hpccomm.backends.context import Context
from hpccomm.backends.cuda_probe import BEGUN
from hpccomm.errors import OptionError
from hpccomm.exchange import together
from hpccomm.launch.stripped import stripped
from hpccomm.whole import write_whole

SETTING = "HPCCOMM_CUDA_AWARE"
_PROBE_S = 60.0

_unknown: dict[str, Verdict] = {}  # what this process need not ask again


@dataclass(frozen=True)
class Verdict:
    """What is known.

    Attributes:
        answer: ``yes``, ``no`` or ``unknown``; only ``yes`` sends addresses of a GPU to MPI.
        reason: Why, in words.
    """

    answer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.answer}: {self.reason}"


def agreed(context: Context, library: str, environ: Mapping[str, str]) -> Verdict:
    """Say whether the MPI library takes a GPU's memory on all ranks of a group; collective. A rank a host asks.

    Raises:
        OptionError: The same on all ranks: HPCCOMM_CUDA_AWARE is neither 0 nor 1.
    """
    topology = context.topology
    first = topology.hosts.index(topology.hosts[topology.rank]) == topology.rank

    def mine() -> Verdict | None:
        if not first:
            return None
        limit_s = min(_PROBE_S, context.timeout_s / 2)
        return verdict(library, environ, device=str(context.device), timeout_s=limit_s)

    found = together(context.exchange, mine)
    verdicts = [one for one in context.exchange.all_gather(found) if one is not None]
    return next((one for one in verdicts if one.answer != "yes"), verdicts[0])


def verdict(library: str, environ: Mapping[str, str], *, device: str, timeout_s: float = _PROBE_S) -> Verdict:
    """Say whether an MPI library takes a GPU's memory; the first time on a host this takes some seconds.

    Args:
        library: The library and its version.
        environ: The environment.
        device: A GPU that torch sees, as torch writes it.
        timeout_s: Seconds that it may take.

    Raises:
        OptionError: HPCCOMM_CUDA_AWARE is neither 0 nor 1.
    """
    if (told := environ.get(SETTING)) is not None:
        return _told(told)
    file = _cache(environ) / "cuda-aware.json"
    key = f"{os.uname().nodename} {sys.executable} {library}"
    known = _read(file)
    if key in known or key in _unknown:
        return known.get(key) or _unknown[key]
    found = ask([sys.executable, "-m", "hpccomm.backends.cuda_probe", device], environ, timeout_s=timeout_s)
    if found.answer == "unknown":  # which may be no property of the library
        _unknown[key] = found
    else:
        _write(file, {**known, key: found})
    return found


def ask(command: Sequence[str], environ: Mapping[str, str], *, timeout_s: float = _PROBE_S) -> Verdict:
    """Run the probe in a process of its own, and make a verdict of its end.

    Args:
        command: The probe.
        environ: The environment, from which the launcher's variables are taken.
        timeout_s: Seconds that it may take.
    """
    try:
        ran = subprocess.run(
            command, env=stripped(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return Verdict("unknown", f"the probe did not end within {timeout_s:g} s")
    except OSError as error:
        return Verdict("unknown", f"the probe did not start: {error}")
    said = ran.stdout.splitlines()
    lines = [line for line in said if line.startswith(("yes", "no:", "unknown:"))]
    if ran.returncode < 0 and Signals(-ran.returncode) in (Signals.SIGSEGV, Signals.SIGBUS):
        return Verdict("no", f"the library crashes on a GPU's address ({Signals(-ran.returncode).name})")
    if not lines:
        last = (ran.stderr.strip().splitlines() or ["without a word"])[-1]
        why = f"the probe ended with status {ran.returncode}: {last[:200]}"
        return Verdict("no" if BEGUN in said else "unknown", why)
    answer, _, reason = lines[-1].partition(": ")
    return Verdict(answer, reason or "one element of a GPU's memory came through every call")


def _told(text: str) -> Verdict:
    if text not in ("0", "1"):
        raise OptionError(
            f"read {SETTING}={text!r}",
            found="neither 0 nor 1",
            remedy="set it to 1 where MPI takes a GPU's memory, to 0 where it does not, or unset it",
            everywhere=True,
        )
    return Verdict("yes" if text == "1" else "no", f"{SETTING}={text}")


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "hpccomm"


def _read(file: Path) -> dict[str, Verdict]:
    try:
        return {key: Verdict(**value) for key, value in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):  # none yet, or not ours
        return {}


def _write(file: Path, verdicts: Mapping[str, Verdict]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps({key: asdict(value) for key, value in verdicts.items()}))
    except OSError:  # no home that can be written to: the next start asks again
        return
