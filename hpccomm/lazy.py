"""Names of a package that are imported when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def finder(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Give a package's ``__getattr__``.

    Args:
        package: Its name.
        homes: The module that each name comes from.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(homes[name]), name)

    return find
