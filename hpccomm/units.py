"""Bytes and seconds as text and back; no other module formats or parses them.

Binary prefixes for sizes (KiB = 2**10 B), decimal ones for rates (GB/s = 10**9 B/s), microseconds for times.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from hpccomm.errors import OptionError

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE | re.ASCII)


def format_bytes(count: int) -> str:
    """Write a size: exact where it is a whole number of its unit, else with two decimals.

    >>> format_bytes(4), format_bytes(65536), format_bytes(1536), format_bytes(10**9)
    ('4 B', '64 KiB', '1.50 KiB', '953.67 MiB')
    """
    unit = 0
    while round(count / 1024**unit, 2) >= 1024 and unit < len(_BINARY) - 1:
        unit += 1
    whole, rest = divmod(count, 1024**unit)
    return f"{count / 1024**unit:.2f} {_BINARY[unit]}" if rest else f"{whole} {_BINARY[unit]}"


def parse_bytes(text: str) -> int:
    """Read a size as nccl-tests does: ``8``, ``64K``, ``1.5M``, ``2GiB`` (all prefixes are powers of 1024).

    Raises:
        OptionError: The text is no size, or no whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    size = Fraction(match[1]) * (1 << 10 * "bkmgt".index((match[2] or "b").lower())) if match else None
    if size is None or size.denominator != 1:
        raise OptionError(
            f"read {text!r} as a size",
            found="not a whole number of bytes",
            remedy="write e.g. 8, 64K, 1.5M or 2G",
        )
    return size.numerator


def format_us(time_us: float) -> str:
    """Write a time given in microseconds without its unit, with at most two decimals.

    >>> format_us(1.924), format_us(24.08), format_us(5380.2)
    ('1.92', '24.1', '5380')
    """
    if time_us < 9.995:
        return f"{time_us:.2f}"
    return f"{time_us:.1f}" if time_us < 999.95 else f"{time_us:.0f}"


def format_seconds(seconds: float) -> str:
    """Write a duration with its unit: ``350 ms``, ``12.5 s``, ``3 min 20 s``."""
    if seconds < 0.999:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95 or not math.isfinite(seconds):
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def rate_gbps(count: int, time_us: float) -> float:
    """Give bytes over microseconds as GB/s (10**9 bytes a second)."""
    return count / time_us / 1e3
