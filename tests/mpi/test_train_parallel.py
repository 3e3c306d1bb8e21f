"""The transformer that is cut over ranks learns what one process learns."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset
from worlds import COMM, in_few_ranks

from harness import ROOT
from hpccomm.errors import OptionError

sys.path.insert(0, str(ROOT / "jobs"))

import train_parallel

EPOCHS, SEED, LR, ROWS, TEST_ROWS = 2, 3, 5e-3, 240, 120
CASES = {2: [(2, 1), (1, 2)], 4: [(2, 2)]}.get(COMM.size, [])

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(not CASES, reason="2 and 4 ranks tell enough"),
    in_few_ranks,
]


@pytest.fixture(autouse=True)
def _in_float64_and_soon_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    data, test = train_parallel.digits()
    monkeypatch.setattr(
        train_parallel, "digits", lambda: (TensorDataset(*data[:ROWS]), TensorDataset(*test[:TEST_ROWS]))
    )
    yield
    torch.set_default_dtype(torch.float32)


def alone() -> list[dict[str, float]]:
    """Train in one process, with neither meshes nor pipelines, and give accuracy and loss after each epoch."""
    data, test = train_parallel.digits()
    train_parallel.seed(SEED)
    network = train_parallel.network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR)
    found = []
    for epoch in range(EPOCHS):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(SEED + epoch))
        for rows in order[: len(data) // train_parallel.BATCH * train_parallel.BATCH].split(train_parallel.BATCH):
            images, labels = data[rows]
            cross_entropy(network(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        images, labels = test[:]
        with torch.no_grad():
            scores = network(images)
        right = float((scores.argmax(1) == labels).double().mean())
        found.append({"accuracy": right, "loss": float(cross_entropy(scores, labels))})
    return found


def options(tp: int, pp: int, *more: Any) -> list[str]:
    words = ("--tp", tp, "--pp", pp, "--epochs", EPOCHS, "--seed", SEED, "--lr", LR, "--backend", "mpi4py", *more)
    return [str(word) for word in words]


@pytest.mark.parametrize(("tp", "pp"), CASES)
def test_it_learns_what_one_process_learns(tmp_path: Path, tp: int, pp: int) -> None:
    file = Path(COMM.bcast(tmp_path)) / "result.json"
    train_parallel.main(options(tp, pp, "--json", file))
    COMM.Barrier()
    found = json.loads(file.read_text())["results"]
    expected = alone()
    assert expected[-1]["accuracy"] > 0.2  # twice what chance gives
    assert [one["accuracy"] for one in found] == [one["accuracy"] for one in expected]
    assert [one["loss"] for one in found] == pytest.approx([one["loss"] for one in expected], rel=1e-9)


def test_what_does_not_fit_is_refused() -> None:
    for tp, pp in ((1, 1), (COMM.size, 2), (COMM.size * 3, 1), (1, COMM.size * 3)):
        with pytest.raises(OptionError, match="ranks, 4 heads and 2 blocks"):
            train_parallel.require_places(COMM.size, train_parallel.parse(options(tp, pp)))
