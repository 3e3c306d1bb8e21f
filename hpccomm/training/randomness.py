"""A rank's random numbers: the states of torch's, on the CPU and on its GPU, of NumPy's and of Python's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def states() -> dict[str, Any]:
    """Give the states, as torch.load takes them without trusting the file; the current GPU's where CUDA is in use."""
    kind, keys, *rest = np.random.get_state()
    found = {
        "torch": torch.get_rng_state(),
        "numpy": [kind, np.asarray(keys).tolist(), *rest],
        "python": random.getstate(),
    }
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {**found, "cuda": torch.cuda.get_rng_state()} if is_used else found


def set_states(found: Mapping[str, Any]) -> None:
    """Take what `states` has given; where there is no GPU, or none was in use, a GPU's are left as they are."""
    torch.set_rng_state(found["torch"])
    np.random.set_state(tuple(found["numpy"]))
    random.setstate(found["python"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
