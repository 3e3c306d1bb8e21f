"""Process groups, kept for the cases that come."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import hpccomm

_LIMIT = "HPCCOMM_MAX_COUNT"


class Groups:
    """The groups of one world, by expression and limit.

    Args:
        deadline_s: Of their operations.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline = timedelta(seconds=deadline_s)
        self._made: dict[tuple[str, int | None], Any] = {}

    def get(self, expression: str, limit: int | None) -> Any:
        """Give a group, made at its first use; collective."""
        key = expression, limit
        if key not in self._made:
            self._made[key] = self._new(expression, limit)
        return self._made[key]

    def drop(self, expression: str, limit: int | None) -> None:
        """Have a group made anew at its next use."""
        group = self._made.pop((expression, limit), None)
        if group is not None:
            dist.destroy_process_group(group)

    def _new(self, expression: str, limit: int | None) -> Any:
        if limit is not None:
            os.environ[_LIMIT] = str(limit)
        try:
            return dist.new_group(backend="hpccomm", timeout=self._deadline, pg_options=hpccomm.Options(expression))
        finally:
            os.environ.pop(_LIMIT, None)
