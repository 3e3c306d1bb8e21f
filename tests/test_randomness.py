"""A rank's random numbers go on from where their states were taken, a GPU's too; a generator stands for a GPU's."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpccomm.training.randomness import set_states, states


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.Generator:
    """Have torch.cuda act as if there were a GPU in use, whose numbers this generator draws."""
    generator = torch.Generator().manual_seed(1)
    have_gpu(monkeypatch, generator)
    return generator


def have_gpu(patch: pytest.MonkeyPatch, generator: torch.Generator | None) -> None:
    patch.setattr(torch.cuda, "is_initialized", lambda: generator is not None)
    patch.setattr(torch.cuda, "is_available", lambda: generator is not None)
    patch.setattr(torch.cuda, "get_rng_state", lambda: no_gpu() if generator is None else generator.get_state())
    patch.setattr(torch.cuda, "set_rng_state", no_gpu if generator is None else generator.set_state)


def no_gpu(*_: object) -> torch.Tensor:
    raise RuntimeError("no CUDA GPUs are available")


def draw(generator: torch.Generator) -> tuple[list[float], list[float], float, float]:
    numbers = torch.rand(3, generator=generator), torch.rand(3)
    return numbers[0].tolist(), numbers[1].tolist(), np.random.rand(), random.random()


def through_file(folder: Path) -> Callable[[Mapping[str, Any]], Any]:
    """Give what writes states to a file and reads them as a checkpoint is read."""

    def pass_on(found: Mapping[str, Any]) -> Any:
        torch.save(found, folder / "states.pt")
        return torch.load(folder / "states.pt", map_location="cpu")

    return pass_on


def test_all_numbers_go_on_from_where_their_states_were_taken(gpu: torch.Generator, tmp_path: Path) -> None:
    taken = through_file(tmp_path)(states())
    expected = draw(gpu)
    assert draw(gpu)[0] != expected[0]
    set_states(taken)
    assert draw(gpu) == expected


def test_states_of_a_gpu_are_no_hindrance_where_there_is_none(
    gpu: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = states()
    expected = draw(gpu)
    have_gpu(monkeypatch, None)
    set_states(taken)
    assert draw(gpu)[1:] == expected[1:]


def test_states_without_a_gpus_leave_its_numbers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    have_gpu(monkeypatch, None)
    taken = states()
    expected = draw(generator)[1:]
    have_gpu(monkeypatch, generator)
    before = generator.get_state()
    set_states(taken)
    assert torch.equal(generator.get_state(), before)
    assert draw(generator)[1:] == expected
