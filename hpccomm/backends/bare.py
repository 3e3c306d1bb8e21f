"""Groups for torch before 2.14, which lets Python make a group but no backend inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hpccomm.backends.c10d import ProcessGroup


def has_backend_class() -> bool:
    """Tell whether this torch lets Python subclass its Backend, and calls the subclass from C++."""
    version = torch.__version__.split(".")
    return (int(version[0]), int(version[1])) >= (2, 14)


class BareGroup(ProcessGroup):
    """A group that says itself what torch asks the backends of a group for.

    Without a name there are no meshes and no functional collectives.
    """

    _name = _description = ""
    _devices: Sequence[torch.device] = ()

    def getGroupName(self) -> str:  # noqa: D102, N802
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: D102, N802
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: D102, N802
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: D102, N802
        self._description = description

    @property
    def _device_types(self) -> list[torch.device]:
        return list(self._devices)

    def _get_backend(self, device: torch.device) -> Any:
        return self


Group: Any = ProcessGroup if has_backend_class() else BareGroup
"""What a group made in Python is derived from."""
