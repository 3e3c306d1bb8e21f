"""Planning: links found again in times made from them, predictions beyond what was fitted, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import Mpi, run_job
from hpccomm.bench.compare import Recorded, load
from hpccomm.cost import Fabric, Link
from hpccomm.errors import OptionError
from hpccomm.plan import observations
from hpccomm.plan.__main__ import main
from hpccomm.plan.observations import composed
from hpccomm.plan.outlook import Cell, Outlook, backend, outlook
from hpccomm.plan.pricing import seconds
from hpccomm.plan.thumb import verdicts
from plans import FLAT, GAMMA, INTER, INTRA, LIMIT, NESTED, NOISE, SIZES, algorithm, fabric, fitted, row, run, write


def test_links_and_injection_are_found_again_in_noisy_times() -> None:
    found = fitted(*(run(fabric(number, 4)) for number in (1, 2, 4)))
    assert found.intra is not None
    assert found.inter is not None
    given = (INTRA.alpha_s, INTRA.beta_s_per_byte, INTER.alpha_s, INTER.beta_s_per_byte, LIMIT)
    links = (found.intra.alpha_s, found.intra.beta_s_per_byte, found.inter.alpha_s, found.inter.beta_s_per_byte)
    assert (*links, found.injection_bytes_per_s) == pytest.approx(given, rel=NOISE)
    assert max(abs(one.error) for one in found.residuals) < 2 * NOISE
    assert all(0 < error < NOISE for error in found.errors.values())


def test_a_limit_that_is_never_reached_is_none_and_reductions_are_told_from_transfers() -> None:
    collectives = ("all_reduce", "all_gather", "reduce_scatter")
    runs = [run(fabric(number, 2, limit=1e12, gamma=GAMMA), collectives=collectives) for number in (1, 2)]
    found = fitted(*runs)
    assert found.injection_bytes_per_s == float("inf")
    assert found.gamma_s_per_byte == pytest.approx(GAMMA, rel=0.3)


@pytest.mark.parametrize("num_nodes", [6, 8])
def test_more_nodes_are_predicted_from_a_fit_on_two_and_four(num_nodes: int) -> None:
    found = fitted(run(fabric(2, 2)), run(fabric(4, 2)))
    for expression in (*FLAT, NESTED):
        for size in SIZES:
            times = [
                seconds(algorithm(expression, on.nodes), "all_reduce", size // 4, itemsize=4, fabric=on)
                for on in (fabric(num_nodes, 2), found.fabric(num_nodes, 2))
            ]
            assert times[1] == pytest.approx(times[0], rel=2 * NOISE)


def test_rows_that_say_nothing_of_links_are_left_out_and_counted() -> None:
    on = fabric(2, 2)
    good = run(on)
    bad = [
        row("ring(mpi4py)", 1024, 1.0, on, dtype="bfloat16"),
        row("ring(mpi4py)", 1024, 1.0, on, place="out"),
        row("ring(mpi4py)", 1024, None, on),  # type: ignore[arg-type]
        row("ring(mpi4py)", 1024, 1.0, on, fell_back="to gloo"),
        row("mpi4py", 1024, 1.0, on, algorithm=None),
        row("checked(ring(mpi4py))", 1024, 1.0, on),
        row("ring(mpi4py)", 1024, 1.0, on, collective="sendrecv", algorithm=None),
        row("hierarchical(ring(mpi4py), ring(gloo))", 1024, 1.0, on),
        row("hierarchical(ring(mpi4py), ring(mpi4py), by=switch)", 1024, 1.0, on),
        row("hierarchical(ring(mpi4py), ring(mpi4py), wire=bfloat16)", 1024, 1.0, on),
        row("hierarchical(ring(mpi4py), direct(mpi4py))", 1024, 1.0, on),
    ]
    mixed = Recorded("mixed", good.environment, [*bad, *good.results])
    found, left_out = observations.read([mixed], None)
    assert [(one.backend, one.nbytes) for one in found] == [(one["backend"], one["size_bytes"]) for one in good.results]
    assert sum(left_out.values()) == len(bad)
    assert left_out["a library chooses the schedule, or several run"] == 4


@pytest.mark.parametrize(("intra", "hidden"), [(INTRA, "inside"), (Link(1e-6, 1e-8), "crossing")])
def test_while_a_piece_of_a_hierarchy_crosses_the_next_is_reduced_inside(intra: Link, hidden: str) -> None:
    nodes, pieces, shard = (0, 0, 1, 1, 2, 2, 3, 3), 4, 1 << 20
    on = Fabric(nodes, intra, INTER, injection_bytes_per_s=1e9)
    inside, crossing = intra.seconds(shard), 6 * (INTER.alpha_s + 2 * shard / 4 / 1e9)
    assert (inside < crossing) is (hidden == "inside")
    count = pieces * 2 * shard // 4
    expected = inside + (pieces - 1) * max(inside, crossing) + crossing + pieces * inside
    found = [
        seconds(composed(nodes, "ring", "ring"), "all_reduce", count, itemsize=4, fabric=on, simulated_ranks=n)
        for n in (0, 8)
    ]
    assert found[0] == pytest.approx(expected)
    assert found[1] == pytest.approx(expected, rel=0.15)


def only(found: Recorded, **wanted: Any) -> Recorded:
    kept = [one for one in found.results if all(one[name] == value for name, value in wanted.items())]
    return Recorded(found.name, found.environment, kept)


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([Recorded("old", {}, run(fabric(2, 2)).results)], "does not say on which nodes"),
        ([only(run(fabric(2, 2)), backend="mpi4py")], "no rows"),
        ([only(run(fabric(2, 2)), size_bytes=1024)], "one size only, 1024 bytes, inside nodes"),
        ([only(run(fabric(2, 2)), backend="ring(mpi4py)")], "4 rows for 5 figures"),
        ([only(run(fabric(n, 2), noise=0), backend="ring(mpi4py)") for n in (2, 4)], "depends on the link inside"),
    ],
)
def test_results_that_cannot_be_fitted_are_refused(runs: list[Recorded], found: str) -> None:
    with pytest.raises(OptionError, match=found):
        fitted(*runs)


@pytest.mark.parametrize(
    ("measured", "asked", "found"),
    [((1, 4), (2, 4), "of one node"), ((4, 1), (2, 4), "no node had two ranks"), ((4, 1), (1, 2), "no node had two")],
)
def test_levels_that_were_not_measured_are_not_planned(
    measured: tuple[int, int], asked: tuple[int, int], found: str
) -> None:
    with pytest.raises(OptionError, match=found):
        fitted(run(fabric(*measured))).fabric(*asked)


def test_what_ranks_of_a_node_share_must_have_been_measured() -> None:
    with pytest.raises(OptionError, match="what a node's ranks share"):
        fitted(run(fabric(1, 4)), run(fabric(4, 1))).fabric(2, 4)


def test_messages_over_one_carrier_are_fitted() -> None:
    on = fabric(2, 2)
    results = run(on).results
    both = [*results, *({**one, "backend": one["backend"].replace("mpi4py", "gloo")} for one in results)]
    mixed = Recorded("mixed", {"node_of_rank": list(on.nodes)}, both)
    with pytest.raises(OptionError, match="over gloo and mpi4py"):
        observations.read([mixed], None)
    found, left_out = observations.read([mixed], "gloo")
    assert {one.carrier for one in found} == {"gloo"}
    assert sum(left_out.values()) == len(results)
    with pytest.raises(OptionError, match="rows over gloo and mpi4py"):
        observations.read([mixed], "nccl")


def test_the_best_changes_with_size_and_nodes_and_what_is_extrapolated_is_said() -> None:
    found = fitted(*(run(fabric(number, 4), noise=0) for number in (1, 2, 4)))
    seen = outlook(found, "all_reduce", num_nodes=96, ranks_per_node=4, sizes=[4, 1 << 20])
    assert seen.nodes == [1, 2, 4, 8, 16, 32, 64, 96]
    short, long = seen.at(96)
    assert short.times_s["ring"] == pytest.approx(2 * 383 * INTER.seconds(4 / 384), rel=0.01)
    assert short.times_s[short.best] < short.times_s["ring"] / 10
    assert long.best.startswith("hierarchical")
    assert short.extrapolated == ("ranks", "nodes", "size")
    assert (seen.at(4)[1].extrapolated, seen.at(4)[0].extrapolated) == ((), ("size",))
    assert not any(name.startswith("hierarchical") for name in seen.at(1)[0].times_s)
    assert backend("hierarchical(ring, tree)", "gloo") == "hierarchical(ring(gloo), tree(gloo))"


def test_the_rule_of_thumb_is_judged_where_it_speaks() -> None:
    times = {"ring": 4.0, "tree": 6.0, "hierarchical(ring, ring)": 3.0, "hierarchical(ring, tree)": 2.0}
    nodes = (1, 2, 4, 8, 16, 64, 100)
    cells = [Cell(number, 4, times, ()) for number in nodes]
    found = verdicts(Outlook("all_reduce", 4, nodes, [4], cells))
    judged = {one.cell.num_nodes: (one.rule, one.ratio) for one in found}
    tree = ("tree", 3.0)
    assert judged == {
        **dict.fromkeys((1, 2), ("ring", 2.0)),
        **dict.fromkeys((4, 8, 16), tree),
        100: ("hierarchical(ring, tree)", 1.0),
    }


def test_the_command_shows_fit_times_map_and_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(tmp_path, [run(fabric(number, 4)) for number in (1, 2, 4)])
    out = tmp_path / "out.json"
    options = ["--nodes", "1024", "--ranks-per-node", "4", "--rule-of-thumb", "--json", str(out)]
    assert main([*options, "--fit", *files]) == 0
    shown = capsys.readouterr().out
    assert "measured for   ranks 4 to 16, nodes 1 to 4, ranks per node 4, size 1 KiB to 4 MiB" in shown
    assert "all_reduce on 4096 ranks of 1024 nodes" in shown
    assert "~ extrapolated: nodes, ranks, size" in shown
    content = json.loads(out.read_text())
    assert content["fit"]["injection_bytes_per_s"] == pytest.approx(LIMIT, rel=NOISE)
    assert len(content["fit"]["rows"]) == 12 + 16 + 16
    last = [cell for cell in content["cells"] if cell["nodes"] == 1024]
    assert {cell["ranks"] for cell in last} == {4096}
    for cell in last:
        assert cell["times_us"][cell["best"]] == min(cell["times_us"].values())
        assert content["backends"][cell["best"]] in shown
    assert {one["nodes"] for one in content["rule_of_thumb"]} == {1, 2, 4, 8, 16, 128, 256, 512, 1024}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--nodes", "0"], "0 ranks"),
        (["--nodes", "1000000"], "4000000 ranks"),
        (["-b", "2"], "sizes from 2"),
        (["-b", "x"], "not a whole number of bytes"),
        (["-f", "1"], "each 1 times"),
        (["--fit", "/nowhere.json"], "--fit /nowhere.json"),
        (["--json", "/nowhere/out.json"], "--json /nowhere/out.json"),
    ],
)
def test_options_that_do_not_fit(
    options: Sequence[str], found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write(tmp_path, [run(fabric(2, 4))])
    assert main(["--nodes", "2", "--ranks-per-node", "4", "--fit", *files, *options]) == 2
    assert found in capsys.readouterr().err


def test_what_the_benchmark_writes_can_be_planned_with(
    one_mpi: Mpi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    argv = [one_mpi.python, "-m", "hpccomm.bench", "--backend", "ring(mpi4py)", "tree(mpi4py)", NESTED, "mpi4py"]
    argv += ["-b", "1K", "-e", "1M", "-f", "32", "-n", "3", "--json", str(path)]
    ended = run_job(one_mpi, 4, argv, env={"HPCCOMM_RANKS_PER_NODE": "2"}, timeout_s=120)
    assert ended.returncode == 0, ended
    assert load(path).environment["node_of_rank"] == [0, 0, 1, 1]
    assert main(["--nodes", "64", "--ranks-per-node", "2", "--fit", str(path)]) == 0
    assert "fitted to 9 rows" in capsys.readouterr().out
