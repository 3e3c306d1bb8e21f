"""The settings that ``--sweep`` compares, from the command line; pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from hpccomm.errors import OptionError
from hpccomm.transport_options import NcclOptions
from hpccomm.units import parse_bytes

_LIBRARY = "nccl."


@dataclass(frozen=True)
class Setting:
    """One combination.

    Attributes:
        name: As the user wrote it: ``nccl.algo=ring nccl.buffsize=1M``.
        options: What NCCL is told.
    """

    name: str
    options: NcclOptions


def settings(texts: Sequence[str]) -> list[Setting]:
    """Give all combinations of some settings' values.

    Args:
        texts: ``nccl.NAME=VALUE,VALUE`` each.

    Raises:
        OptionError: A setting that does not exist, is named twice, or does not take a value.
    """
    swept: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not name.startswith(_LIBRARY) or not equals or name.removeprefix(_LIBRARY) not in NcclOptions.advice():
            raise _error(text, f"there are {', '.join(_LIBRARY + known for known in NcclOptions.advice())}")
        if name in swept:
            raise _error(text, "name a setting once, with all its values: nccl.algo=ring,tree")
        swept[name] = values.split(",")
    return [
        Setting(" ".join(f"{name}={value}" for name, value in zip(swept, chosen, strict=True)), _options(swept, chosen))
        for chosen in itertools.product(*swept.values())
        if chosen
    ]


def _options(names: Sequence[str] | dict[str, list[str]], values: Sequence[str]) -> NcclOptions:
    kinds = get_type_hints(NcclOptions)
    fields = [name.removeprefix(_LIBRARY) for name in names]
    given = {name: _value(name, text, get_args(kinds[name])) for name, text in zip(fields, values, strict=True)}
    return NcclOptions(**given)


def _value(name: str, text: str, kinds: Sequence[type]) -> Any:
    if bool in kinds:
        if text not in ("0", "1"):
            raise _error(f"{_LIBRARY}{name}={text}", "give 0 or 1")
        return text == "1"
    return parse_bytes(text) if int in kinds else text


def _error(text: str, remedy: str) -> OptionError:
    return OptionError(f"read --sweep {text}", found="no setting with its values", remedy=remedy, everywhere=True)
