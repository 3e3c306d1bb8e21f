"""What the benchmark measures besides tables of collectives: models, traffic, overlap, stability, efficiency."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from harness import Mpi, run_job
from hpccomm.bench.arguments import parse
from hpccomm.bench.averaging import Overlap
from hpccomm.bench.compare import load
from hpccomm.bench.efficiency import efficiencies
from hpccomm.bench.models import MODELS, TRANSFORMERS, elements
from hpccomm.bench.page import figures
from hpccomm.bench.page.runs import read
from hpccomm.bench.page.sections import sections as told_of
from hpccomm.bench.steadiness import Log, Steadiness
from hpccomm.bench.traffic import Parallel, layer_us, parallel, step_us, traffic
from hpccomm.errors import OptionError


@pytest.mark.parametrize(
    ("name", "tensors", "parameters"),
    [  # as torchvision and Hugging Face's transformers count them; GPT-3's as its paper rounds it
        ("resnet50", 161, 25_557_032),
        ("gpt2", 148, 124_439_808),
        ("gpt2-xl", 580, 1_557_611_200),
        ("gpt3-175b", 1156, pytest.approx(175e9, rel=0.003)),
    ],
)
def test_models_have_the_parameters_of_their_namesakes(name: str, tensors: int, parameters: object) -> None:
    shapes = MODELS[name]()
    assert (len(shapes), elements(shapes)) == (tensors, parameters)


def test_ranks_are_shared_out_tensor_first_then_data_then_pipeline() -> None:
    ways = parallel((4, 4), tp=2, pp=2)
    assert ways == Parallel(tensor=2, data=2, pipeline=2)
    assert ways.groups("tensor") == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert ways.groups("data") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert ways.groups("pipeline") == ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
    ("sizes", "pp", "tensor"), [((2,), None, 2), ((16, 16), None, 8), ((3, 1), None, 1), ((4,), 2, 2), ((4, 6), 5, 2)]
)
def test_tensor_parallel_ranks_fit_into_a_node(sizes: tuple[int, ...], pp: int | None, tensor: int) -> None:
    assert parallel(sizes, tp=None, pp=pp) == Parallel(tensor, sum(sizes) // tensor // (pp or 1), pp or 1)


@pytest.mark.parametrize(
    ("tp", "pp", "dp", "ways"), [(8, 4, 2, (8, 2, 4)), (None, 4, 4, (4, 4, 4)), (2, None, 32, (2, 32, 1))]
)
def test_data_parallel_ranks_may_be_given(tp: int | None, pp: int | None, dp: int, ways: tuple[int, int, int]) -> None:
    assert parallel((8,) * 8, tp=tp, pp=pp, dp=dp) == Parallel(*ways)


@pytest.mark.parametrize(
    ("sizes", "tp", "dp", "found"),
    [
        ((4,), 3, None, "3 x 1 does not divide 4"),
        ((1,), None, None, "one rank"),
        ((8,), 2, 2, "2 x 1 x 2 is not 8"),
        ((4,), None, 8, "1 x 1 x 8 is not 4"),
        ((4,), None, 3, "1 x 1 x 3 is not 4"),
    ],
)
def test_ranks_that_cannot_be_shared_out_are_refused(
    sizes: tuple[int, ...], tp: int | None, dp: int | None, found: str
) -> None:
    with pytest.raises(OptionError, match=found):
        parallel(sizes, tp=tp, pp=None, dp=dp)


def test_a_step_of_gpt3_as_the_megatron_papers_count_it() -> None:
    kinds = {one.kind: one for one in traffic(TRANSFORMERS["gpt3-175b"], Parallel(8, 2, 4), batch=16, scale=1)}
    hidden, layers, batch = 12288, 96 // 4, 16
    assert kinds["tensor"].elements == kinds["pipeline"].elements == 2048 * hidden
    assert kinds["tensor"].step == 4 * batch * layers  # two all_reduces forward and two backward in every layer
    assert kinds["pipeline"].step == 2 * batch
    assert kinds["data"].elements == (12 * hidden**2 + 13 * hidden) // 8
    assert kinds["data"].step == layers
    times_us = {"tensor": 3.0, "data": 5.0, "pipeline": 7.0}
    assert layer_us(list(kinds.values()), times_us) == 4 * batch * 3.0 + 5.0
    assert step_us(list(kinds.values()), times_us) == layers * (4 * batch * 3.0 + 5.0) + 2 * batch * 7.0


@pytest.mark.parametrize(("both_us", "percent"), [(100.0, 100), (140.0, 0), (120.0, 50), (150.0, -25)])
def test_hidden_is_what_both_at_once_save(both_us: float, percent: float) -> None:
    found = Overlap("gloo", 1024, averaging_us=40.0, backward_us=100.0, both_us=both_us)
    assert found.hidden_percent == pytest.approx(percent)


def steadiness(*, late_us: dict[int, float] | None = None, calls: int = 1000, drift: float = 0.0) -> Steadiness:
    """Judge calls of 100 us and a little noise on four ranks of two hosts, some of which come late."""
    noise, log, late = random.Random(7), Log(), late_us or {}
    for start in range(0, calls, 50):
        times: list[list[float]] = [[] for _ in range(4)]
        for call in range(start, start + 50):
            came = [late.get(rank, 0.0) + noise.uniform(0, 2) for rank in range(4)]
            end = max(came) + (100 + noise.uniform(0, 5)) * (1 + drift * call / calls) + 900 * (call == 123)
            for rank in range(4):
                times[rank].append(end - came[rank])
        log.add(times)
    return log.judge((0, 0, 1, 1), ("a", "b"), seconds=1.0)


@pytest.mark.parametrize(
    ("late_us", "names"),
    [
        ({}, []),
        ({2: 20_000}, ["rank 2 on host b"]),
        ({2: 400, 3: 400}, ["host b"]),
        ({1: 50, 3: 90}, ["rank 3 on host b", "rank 1 on host a"]),
    ],
)
def test_hosts_and_ranks_that_come_late_are_stragglers(late_us: dict[int, float], names: list[str]) -> None:
    found = steadiness(late_us=late_us).stragglers
    assert [one.name for one in found] == names
    if names:
        assert found[0].late_us == pytest.approx(max(late_us.values()), rel=0.1)


def test_drift_and_spikes_are_found() -> None:
    found = steadiness(drift=0.5)
    assert found.drift == pytest.approx(1.45 / 1.05 - 1, abs=0.02)  # middles of the last and of the first fifth
    assert (found.spikes, found.longest_at) == (1, 123)
    assert found.longest_us == pytest.approx(1000, rel=0.1)
    assert abs(steadiness().drift) < 0.02


def test_efficiency_is_busbw_over_that_of_sendrecv() -> None:
    def row(collective: str, backend: str, gbps: float | None) -> dict[str, Any]:
        what = {"collective": collective, "place": "in", "dtype": "float32", "op": None, "ranks": 4}
        return {**what, "backend": backend, "size_bytes": 8, "busbw_GBps": gbps}

    rows = [
        row("sendrecv", "a", 2.0),
        row("sendrecv", "b", 4.0),
        row("broadcast", "a", 1.0),
        row("broadcast", "a", 3.0),
    ]
    (found,) = efficiencies(rows)
    assert (found.backend, found.percent, found.limit_gbps) == ("a", 75.0, 4.0)
    assert found.entries() == {**rows[3], "limit_GBps": 4.0, "efficiency": 0.75}
    assert efficiencies(rows[2:]) == efficiencies([row("sendrecv", "a", None), *rows[2:]]) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--tp 2", "--tp without a --measure that it is for"),
        ("--measure buckets --pp 2", "--pp without"),
        ("--measure buckets -d int", "gradients are floats"),
        ("--measure overlap --device cuda", "host memory"),
        ("--measure workloads --model resnet50", "--model resnet50 does not fit --measure workloads; take gpt2"),
        ("--measure efficiency", "with that of sendrecv"),
        ("--measure efficiency --collective sendrecv", "with that of sendrecv"),
        ("--measure buckets -o max", "-o does not fit"),
        ("--measure speed", "'speed' (choose from"),
    ],
)
def test_what_does_not_go_together_is_refused(line: str, found: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(line.split())
    assert found in caught.value.found


def test_all_of_it_in_one_run_beside_a_backend_that_is_wrong(one_mpi: Mpi, tmp_path: Path) -> None:
    path, wrong = tmp_path / "out.json", "faulty(mpi4py, wrong, rank=0)"
    options = "--collective sendrecv all_reduce --measure buckets overlap workloads stability efficiency -b 4K -e 4K"
    shape = "--scale 512 --buckets 64K --model gpt2 --tp 2 --batch 2 -n 2 --budget 4"
    argv = ["-m", "hpccomm.bench", *options.split(), *shape.split(), "--backend", "mpi4py", wrong, "--json", str(path)]
    result = run_job(one_mpi, 4, [one_mpi.python, *argv], timeout_s=240)
    assert result.returncode == 1, result
    content = json.loads(path.read_text())
    assert content["complete"] is True
    times = {
        (one["collective"], one["ranks"], one["op"], one["size_bytes"]): one["time_us_median"]
        for one in content["results"]
        if one["backend"] == "mpi4py"
    }
    assert None not in times.values()
    assert {one["time_us_median"] for one in content["results"] if one["backend"] == wrong} == {None}
    sections = [name for name in ("overlap", "workloads", "stability", "efficiency") if name in content]
    assert sections == ["overlap", "workloads", "stability", "efficiency"]
    assert {one["backend"] for name in sections for one in content[name]} == {"mpi4py"}
    for one in content["overlap"]:
        alone = times["gradients of gpt2/512", 4, "avg", one["bucket_bytes"]]
        both = times["backward and gradients of gpt2/512", 4, "avg", one["bucket_bytes"]]
        assert one["hidden_percent"] == pytest.approx(100 * (alone + one["backward_us"] - both) / alone)
    activations, gradients = 1024 * 768 // 512 * 4, (12 * 768**2 + 13 * 768) // 2 // 512 * 4
    tensor, data = times["all_reduce", 2, "sum", activations], times["all_reduce", 2, "avg", gradients]
    assert content["workloads"][0]["layer_us"] == pytest.approx(4 * 2 * tensor + data)
    assert content["workloads"][0]["step_us"] == pytest.approx(12 * (4 * 2 * tensor + data))
    assert content["stability"][0]["calls"] % 20 == 0
    run = read(load(path))
    told = told_of(run, figures.colours([run]), "run1")
    assert [one.anchor for one in told] == ["efficiency", "overlap", "buckets", "workloads", "stability", "start"]
    assert run.readings.workloads[0].step_us == pytest.approx(content["workloads"][0]["step_us"])
    assert run.readings.workloads[0].layer_us == pytest.approx(content["workloads"][0]["layer_us"])
    assert sum(run.readings.stability[0].found.last) == pytest.approx(1)
