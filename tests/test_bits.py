"""The same bits: of whole numbers under every MPI, of real ones whenever one MPI runs them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness import Mpi, known_mpis, run_job
from outcomes import assert_success

PROGRAM = str(Path(__file__).with_name("programs") / "bits.py")
BACKENDS = ("mpi4py", "hierarchical(mpi4py, gloo)")
JOB_S = 200.0
LEAST = 500  # calls with whole numbers that must have been compared

Digests = dict[str, dict[str, Sequence[str | None]]]
Runs = Callable[[Mpi], list[Digests]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Give what came out of two jobs of four ranks on two pretended nodes; an MPI's jobs run once."""
    done: dict[str, list[Digests]] = {}

    def of(mpi: Mpi) -> list[Digests]:
        if mpi.name not in done:
            done[mpi.name] = []  # for the tests that follow where this one fails
            folder = tmp_path_factory.mktemp(mpi.name)
            done[mpi.name] = [play(mpi, folder / f"{number}.json") for number in (1, 2)]
        return done[mpi.name]

    return of


def play(mpi: Mpi, file: Path) -> Digests:
    argv = [mpi.python, "-W", "ignore", PROGRAM, str(file), *BACKENDS]
    assert_success(run_job(mpi, 4, argv, env={"HPCCOMM_RANKS_PER_NODE": "2"}, timeout_s=JOB_S))
    digests: Digests = json.loads(file.read_text())
    return digests


def differing(one: Digests, other: Digests, kind: str) -> list[str]:
    assert one[kind].keys() == other[kind].keys()
    return [
        f"{call}: {bits} against {other[kind][call]}" for call, bits in one[kind].items() if bits != other[kind][call]
    ]


def test_one_mpi_gives_the_same_bits_again(mpi: Mpi, runs: Runs) -> None:
    first, second = runs(mpi)
    assert not [f"{call}: {bits}" for call, bits in first["reals"].items() if " or " in str(bits)]
    assert not differing(first, second, "reals")
    assert not differing(first, second, "integers")


def test_whole_numbers_give_the_same_bits_under_every_mpi(mpi: Mpi, runs: Runs) -> None:
    usable = [one for one in known_mpis() if not one.missing]
    if mpi == usable[0]:
        pytest.skip("the others are compared with it")
    (one, _), (other, _) = runs(usable[0]), runs(mpi)
    assert len(one["integers"]) > LEAST
    assert not differing(one, other, "integers")
