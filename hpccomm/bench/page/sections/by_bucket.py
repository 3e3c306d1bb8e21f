"""What sections over bucket sizes share: curves, and values by bucket and backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from hpccomm.bench.averaging import Averaged
from hpccomm.bench.page.shapes import Series
from hpccomm.units import format_bytes

Found = TypeVar("Found", bound=Averaged)


def of_backends(found: Sequence[Found]) -> dict[str, list[Found]]:
    """Give what was found by backend, buckets ascending."""
    backends: dict[str, list[Found]] = {}
    for one in sorted(found, key=lambda one: one.bucket_bytes):
        backends.setdefault(one.backend, []).append(one)
    return {name: backends[name] for name in dict.fromkeys(one.backend for one in found)}


def series(found: Sequence[Found], palette: Mapping[str, int], value: Callable[[Found], float]) -> tuple[Series, ...]:
    """Give a curve for each backend."""
    return tuple(
        Series(backend, palette[backend], tuple((one.bucket_bytes, value(one)) for one in of_backend))
        for backend, of_backend in of_backends(found).items()
    )


def rows(found: Sequence[Found], cells: Callable[[Found], Sequence[str]]) -> list[list[str]]:
    """Give a row for each bucket size and backend."""
    ordered = sorted(found, key=lambda one: one.bucket_bytes)
    return [[format_bytes(one.bucket_bytes), one.backend, *cells(one)] for one in ordered]
