"""Planning where no row tells of the link inside nodes, as those between them hide it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpccomm.cost import Fabric, Link
from hpccomm.errors import OptionError
from hpccomm.plan.__main__ import main
from hpccomm.plan.outlook import outlook
from hpccomm.plan.pricing import seconds
from plans import FLAT, NESTED, NOISE, SIZES, algorithm, fabric, fitted, run, write


def fast(num_nodes: int) -> Fabric:
    """Give nodes whose inner link no time shows."""
    return replace(fabric(num_nodes, 2), intra=Link(1e-9, 1e-14))


def test_a_link_that_is_hidden_is_planned_with_where_it_stays_so() -> None:
    found = fitted(run(fast(2), noise=0), run(fast(4), noise=0))
    assert found.hides_intra
    for expression in (*FLAT, NESTED):
        times = [
            seconds(algorithm(expression, on.nodes), "all_reduce", SIZES[-1] // 4, itemsize=4, fabric=on)
            for on in (fast(8), found.fabric(8, 2))
        ]
        assert times[1] == pytest.approx(times[0], rel=NOISE)
    assert outlook(found, "all_reduce", num_nodes=6, ranks_per_node=2, sizes=[4]).nodes == [2, 4, 6]
    for num_nodes, ranks_per_node in ((1, 2), (8, 4)):
        with pytest.raises(OptionError, match="inside nodes is hidden") as refused:
            found.fabric(num_nodes, ranks_per_node)
        assert "one node" in refused.value.remedy
    assert not fitted(run(fabric(2, 2), noise=0), run(fabric(4, 2), noise=0)).hides_intra


def test_the_command_says_that_a_link_is_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write(tmp_path, [run(fast(number), noise=0) for number in (2, 4)])
    out = tmp_path / "out.json"
    assert main(["--nodes", "64", "--ranks-per-node", "2", "--json", str(out), "--fit", *files]) == 0
    assert "inside nodes   hidden by those between nodes" in capsys.readouterr().out
    content = json.loads(out.read_text())
    assert (content["fit"]["intra"], content["fit"]["hides_intra"]) == (None, True)
    assert {cell["nodes"] for cell in content["cells"]} == {2, 4, 8, 16, 32, 64}
    assert main(["--nodes", "1", "--ranks-per-node", "2", "--fit", *files]) == 2
    assert "add results of one node" in capsys.readouterr().err
