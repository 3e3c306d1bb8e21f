"""Tournaments, the rule for what is slow, and the heat map, from matrices that nobody measured."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations

import pytest

from hpccomm.bench.pairs import heat
from hpccomm.bench.pairs.matrix import BANDWIDTH, LATENCY, Edge, from_entries
from hpccomm.bench.pairs.outliers import find, none_slow
from hpccomm.bench.pairs.tournament import rounds
from hpccomm.bench.text import plain
from matrices import by_slot, matrix_of, touching

UNEVEN = (0, 0, 0, 1, 2, 2)


@pytest.mark.parametrize("hosts", [by_slot(1, 2), by_slot(1, 5), by_slot(4, 2), by_slot(8, 8), by_slot(7, 1), UNEVEN])
def test_every_pair_meets_once_and_nobody_plays_twice_in_a_round(hosts: tuple[int, ...]) -> None:
    turns, total = rounds(hosts)
    assert len(turns) == total
    met = Counter(tuple(sorted(pair)) for turn in turns for pair in turn)
    assert met == Counter(combinations(range(len(hosts)), 2))
    for turn in turns:
        assert max(Counter(rank for pair in turn for rank in pair).values()) == 1


def test_hosts_meet_host_against_host() -> None:
    hosts = by_slot(6, 4)
    turns, _ = rounds(hosts)
    assert len(turns) == 3 + 5 * 4
    for turn in turns[3:]:
        assert len(turn) == 12
        assert set(Counter((hosts[a], hosts[b]) for a, b in turn).values()) == {4}


@pytest.mark.parametrize(("hosts", "slots"), [(64, 8), (1, 100), (65, 1), (2, 64)])
def test_above_64_ranks_rounds_are_sampled_evenly(hosts: int, slots: int) -> None:
    of = by_slot(hosts, slots)
    turns, total = rounds(of)
    assert len(turns) == 64 < total
    partners = Counter(rank for turn in turns for pair in turn for rank in pair)
    assert len(partners) == hosts * slots
    assert max(partners.values()) - min(partners.values()) <= 2
    if hosts > 2:
        opposed = Counter((of[a], of[b]) for turn in turns for a, b in turn if of[a] != of[b])
        assert len(opposed) >= 0.9 * hosts * (hosts - 1) / 2


@pytest.mark.parametrize("hosts", [by_slot(3, 1), by_slot(4, 1), by_slot(4, 2), by_slot(8, 8)])
def test_the_host_with_a_sick_link_is_named_alone(hosts: tuple[int, ...]) -> None:
    sick = touching(hosts, 1)
    (found,) = find(matrix_of(hosts, dict.fromkeys(sick, 4.0)))
    assert (found.measure, found.name) == (BANDWIDTH, "host node2, sending to and receiving from other hosts")
    assert set(found.edges) == set(sick)
    assert found.times == pytest.approx(4, rel=0.1)
    assert found.value * found.times == pytest.approx(found.median)


def test_a_link_that_is_sick_one_way_is_named_so() -> None:
    hosts = by_slot(6, 2)
    sick = [(a, b) for a, b in touching(hosts, 0) if hosts[a] == 0]
    (found,) = find(matrix_of(hosts, dict.fromkeys(sick, 2.0)))
    assert found.name == "host node1, sending to other hosts"
    assert set(found.edges) == set(sick)


def test_a_sick_rank_and_a_sick_pair_are_found_beside_a_sick_host() -> None:
    hosts = by_slot(6, 4)
    slow = dict.fromkeys(touching(hosts, 5), 4.0)
    slow |= {(rank, other): 3.0 for rank, other in touching(hosts, 0) if rank == 2}
    slow |= {(9, 13): 8.0, (17, 16): 2.0}
    found = find(matrix_of(hosts, slow))
    assert [one.name for one in found] == [
        "rank 9 (node3) to rank 13 (node4)",
        "host node6, sending to and receiving from other hosts",
        "rank 2 (node1), sending to ranks of other hosts",
        "rank 17 (node5) to rank 16 (node5)",
    ]


@pytest.mark.parametrize("hosts", [(0, 1), (0, 0), by_slot(2, 4), by_slot(8, 8)])
def test_nothing_is_slow_where_all_are_alike(hosts: tuple[int, ...]) -> None:
    assert find(matrix_of(hosts)) == []


def test_a_sick_host_is_named_where_pairs_of_others_had_hitches() -> None:
    hosts = by_slot(4, 1)
    hitches = {(2, 3): 2.5, (3, 2): 1.6}
    slow = dict.fromkeys(touching(hosts, 0), 4.0)
    names = [one.name for one in find(matrix_of(hosts, slow | hitches))]
    assert names[0] == "host node1, sending to and receiving from other hosts"
    assert names[1:] == ["rank 2 (node3) to rank 3 (node4)", "rank 3 (node4) to rank 2 (node3)"]


def test_where_ranks_share_cores_only_links_are_judged() -> None:
    hosts = by_slot(1, 6)
    crowded = matrix_of(hosts, {(1, 2): 9.0}, oversubscribed=True)
    assert find(crowded) == []
    assert none_slow(crowded) == "nothing could be judged: ranks share cores, and too few pairs are between hosts"
    assert len(find(replace(crowded, oversubscribed=False))) == 1
    assert none_slow(matrix_of(by_slot(4, 1))) == "no host, rank or pair is slow"


def test_a_matrix_is_read_as_it_was_written() -> None:
    made = matrix_of(UNEVEN)
    made = replace(made, edges=(*made.edges[:-1], Edge(5, 4, None, None, wrong=3)), error="rank 1: it broke")
    assert from_entries(json.loads(json.dumps(made.entries()))) == made
    assert made.is_broken


@pytest.mark.parametrize(
    "changed",
    [
        {"edges": [[0, 9, 1.0, 1.0, 0]]},
        {"edges": [[0, 1, -1.0, 1.0, 0]]},
        {"edges": [[0, 1, 1.0, "1 GB/s", 0]]},
        {"edges": [[0, 1]]},
        {"hosts": [0, 7]},
        {"iterations": "5"},
    ],
)
def test_what_is_no_matrix_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        from_entries({**json.loads(json.dumps(matrix_of(UNEVEN).entries())), **changed})


def test_a_small_map_holds_figures_and_marks_what_is_slow() -> None:
    hosts = by_slot(4, 1)
    made = matrix_of(hosts, dict.fromkeys(touching(hosts, 2), 4.0))
    shown = [plain(line) for line in heat.lines(made, find(made), colours=False)]
    rows = [line.split() for line in shown if line.startswith("rank ")]
    rates = rows[4:]
    assert [len(row) for row in rows] == [7] * 8
    assert [[cell.endswith("#") for cell in row[3:]] for row in rates] == [
        [(source == 2) != (dest == 2) for dest in range(4)] for source in range(4)
    ]
    assert "SLOW: host node3, sending to and receiving from other hosts: bandwidth 0.2" in "\n".join(shown)
    assert all(line.isascii() for line in shown)


@pytest.mark.parametrize("slots", [4, 32])
def test_a_large_map_shows_a_character_a_rank_or_block(slots: int) -> None:
    hosts = by_slot(16, slots)
    made = matrix_of(hosts, dict.fromkeys(touching(hosts, 7), 4.0))
    shown = [plain(line) for line in heat.lines(made, find(made), colours=False)]
    assert max(map(len, shown)) <= 101
    rows = [line for line in shown if line.strip().startswith("rank 0 (node1)")]
    latency, rates = (row.partition(") ")[2] for row in rows)
    assert set(latency) <= {".", "\\"}
    share = len(rates) / 16
    marked = [place for place, mark in enumerate(rates) if mark == "#"]
    assert marked[0] == pytest.approx(7 * share, abs=1)
    assert marked[-1] == pytest.approx(8 * share - 1, abs=1)
    coloured = heat.lines(made, find(made), colours=True)
    assert any("\x1b[1;31m#" in line for line in coloured)


def test_wrong_and_failed_pairs_are_named() -> None:
    made = matrix_of((0, 0, 1))
    broken = replace(made, edges=(Edge(0, 1, None, None, wrong=7), *made.edges[1:]), error="rank 2: gone")
    text = plain("\n".join(heat.lines(broken, [], colours=False)))
    assert "WRONG: 1 pair: ranks 0 to 1" in text
    assert "FAILED: rank 2: gone" in text
    assert broken.medians(LATENCY).keys() == {"inside hosts", "between hosts"}
