"""Checkpoints compared to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def state(path: Path) -> Any:
    """Give a checkpoint but for the run's progress, in which there are times, as plain values that == compares."""
    found = torch.load(path)
    del found["progress of the run"]
    return _plain(found)


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
