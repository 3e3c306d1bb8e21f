"""Cost: simulated times against sums by hand, closed forms against the simulation, and links from measured times."""

from __future__ import annotations

import math
from collections import Counter
from math import inf, nan

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpccomm.algorithms import ALGORITHMS, Algorithm, find
from hpccomm.algorithms.hierarchical import hierarchical
from hpccomm.cost import Fabric, Link, closed, fit, predict, simulate, traffic
from hpccomm.cost.rounds import CLOSED_FORMS
from hpccomm.cost.traffic import Load
from hpccomm.errors import OptionError, ScheduleError
from hpccomm.schedule import Step

LINK = Link(3e-6, 1e-9)
FAST, SLOW = Link(1e-6, 1e-10), Link(5e-6, 1e-9)
GAMMA = 2.5e-10
COUNT, ITEM = math.lcm(*range(1, 17)), 4
BYTES = COUNT * ITEM


def transfer(nbytes: float) -> float:
    return 3e-6 + nbytes * 1e-9


def message(source: int, dest: int, count: int, size: int):
    """Give all ranks' schedules of one message."""
    steps = {source: [Step(dest=dest, send=(0, count))], dest: [Step(source=source, recv=(0, count))]}
    return [steps.get(rank, []) for rank in range(size)]


def in_closed_form(algorithm: Algorithm, collective: str, fabric: Fabric) -> float:
    return predict(algorithm, collective, COUNT, itemsize=ITEM, fabric=fabric, simulated_ranks=0)


def two_nodes(**limits: float) -> Fabric:
    """Describe two nodes of two ranks."""
    return Fabric((0, 0, 1, 1), FAST, SLOW, **limits)


@pytest.mark.parametrize(("dest", "link"), [(1, FAST), (2, SLOW), (3, SLOW)])
def test_one_message_takes_alpha_and_beta_of_its_link(dest: int, link: Link) -> None:
    seconds = simulate(message(0, dest, 1000, 4), itemsize=8, fabric=two_nodes())
    assert seconds == pytest.approx(link.alpha_s + 8000 * link.beta_s_per_byte) == link.seconds(8000)


def test_a_rank_sends_one_message_at_a_time_but_receives_meanwhile() -> None:
    fabric = Fabric.uniform(3, LINK)
    whole = (0, 1000)
    fan_out = [[Step(dest=1, send=whole), Step(dest=2, send=whole)], *[[Step(source=0, recv=whole)]] * 2]
    fan_in = [[Step(source=1, recv=whole), Step(source=2, recv=whole)], *[[Step(dest=0, send=whole)]] * 2]
    both_ways = [[Step(1, whole, 1, whole)], [Step(0, whole, 0, whole)], []]
    times = [simulate(steps, itemsize=4, fabric=fabric) for steps in (fan_out, fan_in, both_ways)]
    assert times == pytest.approx([2 * transfer(4000), 2 * transfer(4000), transfer(4000)])


def test_a_reduction_delays_what_is_sent_after_it_and_local_copies_are_free() -> None:
    fabric = Fabric.uniform(3, LINK, gamma_s_per_byte=GAMMA)
    whole = (0, 1000)
    line = [
        [Step(dest=1, send=whole)],
        [Step(source=0, recv=whole, reduce=True), Step(dest=2, send=whole)],
        [Step(source=1, recv=whole), Step(2, whole, 2, whole)],
    ]
    assert simulate(line, itemsize=4, fabric=fabric) == pytest.approx(2 * transfer(4000) + 4000 * GAMMA)
    line[2][1] = Step(2, whole, 2, whole, reduce=True)
    assert simulate(line, itemsize=4, fabric=fabric) == pytest.approx(2 * transfer(4000) + 8000 * GAMMA)


@pytest.mark.parametrize(("limit", "expected"), [(inf, 5e-6 + 4e-6), (1e9, 5e-6 + 8e-6), (4e9, 5e-6 + 4e-6)])
def test_ranks_of_a_node_share_its_injection(limit: float, expected: float) -> None:
    whole = (0, 1000)
    across = [[Step(dest=rank + 2, send=whole)] for rank in range(2)] + [[Step(source=r, recv=whole)] for r in range(2)]
    fabric = two_nodes(injection_bytes_per_s=limit)
    assert simulate(across, itemsize=4, fabric=fabric) == pytest.approx(expected)


def test_messages_inside_a_node_need_no_injection() -> None:
    fabric = two_nodes(injection_bytes_per_s=1.0)
    assert simulate(message(0, 1, 1000, 4), itemsize=4, fabric=fabric) == pytest.approx(FAST.seconds(4000))


def test_empty_messages_cost_nothing_and_one_rank_neither() -> None:
    assert simulate(message(0, 1, 0, 2), itemsize=4, fabric=Fabric.uniform(2, LINK)) == 0
    assert predict(find("ring"), "all_reduce", 100, itemsize=4, fabric=Fabric.uniform(1, LINK)) == 0


def test_what_cannot_end_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"ranks \[1\] wait"):
        simulate([[], [Step(source=0, recv=(0, 1))]], itemsize=4, fabric=Fabric.uniform(2, LINK))
    with pytest.raises(ScheduleError, match="1 schedules for 2 ranks"):
        simulate([[]], itemsize=4, fabric=Fabric.uniform(2, LINK))
    with pytest.raises(ScheduleError, match="it serves all_reduce, reduce_scatter, all_gather"):
        predict(find("ring"), "broadcast", 1, itemsize=4, fabric=Fabric.uniform(2, LINK))


def by_hand(name: str, size: int) -> float:
    """Work out an all-reduce of BYTES among a power of two of ranks."""
    t, g, log, n = transfer(BYTES), BYTES * GAMMA, round(math.log2(size)), BYTES / size
    return {
        "naive": t + g + (size - 2) * max(t, g) + (size - 1) * t,
        "direct": (size - 1) * (t + g),
        "pairwise": 2 * (size - 1) * transfer(n) + (size - 1) * n * GAMMA,
        "ring": 2 * (size - 1) * transfer(n) + (size - 1) * n * GAMMA,
        "tree": log * (2 * t + g),
        "recursive_doubling": log * (t + g),
        "halving_doubling": 2 * log * 3e-6 + (size - 1) * n * (2e-9 + GAMMA),
    }[name]


@pytest.mark.parametrize("size", [2, 4, 8, 16])
@pytest.mark.parametrize("name", [name for name, algorithm in ALGORITHMS.items() if algorithm.all_reduce])
def test_all_reduce_on_a_uniform_fabric(name: str, size: int) -> None:
    fabric = Fabric.uniform(size, LINK, gamma_s_per_byte=GAMMA)
    simulated = predict(find(name), "all_reduce", COUNT, itemsize=ITEM, fabric=fabric)
    assert simulated == pytest.approx(by_hand(name, size))
    assert in_closed_form(find(name), "all_reduce", fabric) == pytest.approx(simulated)


ANY_SIZE = {"naive", "direct", "pairwise", "ring"}


@pytest.mark.parametrize("gamma", [0.0, GAMMA, 4e-9])
@pytest.mark.parametrize(("name", "collective"), CLOSED_FORMS)
def test_closed_forms_equal_the_simulation(name: str, collective: str, gamma: float) -> None:
    for size in range(1, 17):
        fabric = Fabric.uniform(size, LINK, gamma_s_per_byte=gamma)
        simulated = predict(find(name), collective, COUNT, itemsize=ITEM, fabric=fabric)
        closed = in_closed_form(find(name), collective, fabric)
        is_exact = name in ANY_SIZE or size & (size - 1) == 0
        assert closed == pytest.approx(simulated, rel=1e-9 if is_exact else 0.35), (size, closed, simulated)


@pytest.mark.parametrize(("name", "collective"), CLOSED_FORMS)
def test_closed_forms_know_nodes_and_injection(name: str, collective: str) -> None:
    fabric = Fabric(tuple(rank // 4 for rank in range(16)), FAST, SLOW, GAMMA, injection_bytes_per_s=2e9)
    simulated = predict(find(name), collective, COUNT, itemsize=ITEM, fabric=fabric)
    closed = in_closed_form(find(name), collective, fabric)
    assert closed == pytest.approx(simulated, rel=0.25)


BY_SLOT = [(1, 8), (2, 4), (3, 1), (3, 4), (8, 2), (5, 3)]


@pytest.mark.parametrize(("num_nodes", "per_node"), BY_SLOT)
def test_shifts_are_counted_as_if_they_were_listed(num_nodes: int, per_node: int) -> None:
    nodes = tuple(rank // per_node for rank in range(num_nodes * per_node))
    size, listed = len(nodes), []
    for distance in range(1, size):
        ends = [(nodes[rank], nodes[(rank + distance) % size]) for rank in range(size)]
        crossing = Counter(source for source, dest in ends if source != dest)
        listed.append(Load(max(crossing.values(), default=0), inside=crossing.total() < size))
        assert traffic.ahead(distance)(nodes) == Counter(listed[-1:])
    assert traffic.to_all(nodes) == Counter(listed)
    assert traffic.to_all(nodes[1:]) == traffic.to_all(nodes[:0:-1])  # listed, as the first node is smaller


@pytest.mark.parametrize("reach", [1, 2, 4])
@pytest.mark.parametrize("per_node", [1, 2, 4, 8])
def test_partners_are_counted_as_if_they_were_listed(per_node: int, reach: int) -> None:
    nodes = tuple(rank // per_node for rank in range(8))
    pairs = [(rank, rank ^ reach) for rank in range(8)]
    assert traffic.to_partners(reach, lambda: range(8))(nodes) == traffic.at_once(lambda: pairs)(nodes)


@pytest.mark.parametrize(("num_nodes", "per_node"), BY_SLOT)
@pytest.mark.parametrize("inter", ["ring", "pairwise", "halving_doubling", "recursive_doubling"])
def test_hierarchies_have_a_closed_form(num_nodes: int, per_node: int, inter: str) -> None:
    nodes = tuple(rank // per_node for rank in range(num_nodes * per_node))
    fabric = Fabric(nodes, FAST, SLOW, GAMMA, injection_bytes_per_s=2e9)
    composed = hierarchical(nodes, intra=find("ring"), inter=find(inter))
    assert in_closed_form(composed, "all_reduce", fabric) == pytest.approx(
        predict(composed, "all_reduce", COUNT, itemsize=ITEM, fabric=fabric), rel=0.35
    )


def test_uneven_nodes_have_no_closed_form() -> None:
    nodes = (0, 0, 0, 1, 1)
    composed = hierarchical(nodes, intra=find("ring"), inter=find("ring"))
    assert closed.terms(composed, "all_reduce", nodes) is None


def test_many_ranks_are_predicted_in_closed_form() -> None:
    fabric = Fabric.uniform(4096, LINK, gamma_s_per_byte=GAMMA)
    n = 4 * 1024
    expected = 4095 * (2 * transfer(n) + n * GAMMA)
    assert predict(find("ring"), "all_reduce", 1024 * 4096, itemsize=4, fabric=fabric) == pytest.approx(expected)


def test_another_algorithm_of_a_known_name_is_simulated() -> None:
    fabric = Fabric.uniform(4, LINK)
    twin = Algorithm("ring", all_reduce=find("tree").all_reduce)
    found = predict(twin, "all_reduce", 100, itemsize=4, fabric=fabric, simulated_ranks=0)
    assert found == pytest.approx(4 * transfer(400))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_collective_has_a_price(name: str) -> None:
    fabric = Fabric((0, 0, 1, 1, 1), FAST, SLOW, GAMMA)
    for collective in ALGORITHMS[name].collectives:
        assert predict(ALGORITHMS[name], collective, 1000, itemsize=4, fabric=fabric) >= 2 * SLOW.alpha_s


def test_a_hierarchy_pays_where_links_between_nodes_are_slow() -> None:
    nodes = tuple(rank % 4 for rank in range(16))
    fabric = Fabric(nodes, FAST, SLOW, injection_bytes_per_s=1e9)
    composed = hierarchical(nodes, intra=find("ring"), inter=find("ring"))
    flat, nested = (predict(a, "all_reduce", COUNT, itemsize=ITEM, fabric=fabric) for a in (find("ring"), composed))
    on_rails = 6 * (5e-6 + BYTES / 4 / 1e9)
    inside = 6 * FAST.seconds(BYTES / 16 * 4)
    assert nested == pytest.approx(on_rails + inside, rel=0.1)
    assert nested < flat / 3


@given(st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-7), st.sets(st.integers(0, 10**9), min_size=2, max_size=20))
def test_fit_finds_the_link_behind_exact_times(alpha: float, beta: float, sizes: set[int]) -> None:
    assume(max(sizes) - min(sizes) > 1000)
    link = fit([(nbytes, alpha + beta * nbytes) for nbytes in sizes])
    for nbytes in sizes:
        assert link.seconds(nbytes) == pytest.approx(alpha + beta * nbytes, rel=1e-6)


def test_fit_weighs_relative_errors() -> None:
    sizes = [4, 64, 1024, 2**20, 2**26]
    link = fit([(nbytes, LINK.seconds(nbytes) * (1.05 if index % 2 else 0.95)) for index, nbytes in enumerate(sizes)])
    assert link.alpha_s == pytest.approx(LINK.alpha_s, rel=0.06)
    assert link.beta_s_per_byte == pytest.approx(LINK.beta_s_per_byte, rel=0.06)


def test_fit_gives_no_negative_figure() -> None:
    steep, falling = fit([(1000, 1e-6), (2000, 4e-6)]), fit([(1000, 4e-6), (2000, 1e-6)])
    assert (steep.alpha_s, falling.beta_s_per_byte) == (0, 0)
    assert steep.beta_s_per_byte == pytest.approx((1e9 + 5e8) / (1e18 + 2.5e17))
    assert falling.alpha_s == pytest.approx((2.5e5 + 1e6) / (2.5e5**2 + 1e6**2))


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        ([], "fewer than two"),
        ([(8, 1e-6), (8, 2e-6)], "fewer than two"),
        ([(8, 0.0), (16, 1e-6)], "cannot be"),
        ([(8, nan), (16, 1e-6)], "cannot be"),
        ([(-8, 1e-6), (16, 1e-6)], "cannot be"),
    ],
)
def test_fit_refuses_samples_that_say_nothing(samples: list[tuple[int, float]], found: str) -> None:
    with pytest.raises(OptionError, match=found):
        fit(samples)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Link(-1e-6, 0),
        lambda: Link(0, nan),
        lambda: Link(inf, 0),
        lambda: two_nodes(gamma_s_per_byte=-1.0),
        lambda: two_nodes(injection_bytes_per_s=0.0),
    ],
)
def test_impossible_figures_are_refused(make) -> None:
    with pytest.raises(OptionError, match="this cannot be"):
        make()
