"""Topology: hosts and nodes from gathered identities, and everything derived from them."""

import pickle
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccomm.errors import OptionError, TopologyError
from hpccomm.topology import NodeIdentity, Topology, identify, resolve


def identities_of(pattern, *, shared=None, claims=None, pieces=None):
    """Give one identity a letter of `pattern`: equal letters are one host."""
    shared = shared or [pattern.index(letter) for letter in pattern]
    claims = claims or [None] * len(pattern)
    pieces = pieces if isinstance(pieces, list) else [pieces] * len(pattern)
    rows = zip(pattern, shared, claims, pieces, strict=True)
    return [NodeIdentity(f"host{letter}", f"boot{letter}", *fields) for letter, *fields in rows]


def world(pattern, rank=0, **overrides):
    return resolve(rank, identities_of(pattern, **overrides))


# pattern, nodes of the ranks, local ranks, rails
LAYOUTS = [
    ("A", (0,), (0,), ((0,),)),
    ("AAAA", (0, 0, 0, 0), (0, 1, 2, 3), ((0,), (1,), (2,), (3,))),
    ("ABCD", (0, 1, 2, 3), (0, 0, 0, 0), ((0, 1, 2, 3),)),
    ("AABB", (0, 0, 1, 1), (0, 1, 0, 1), ((0, 2), (1, 3))),
    ("ABAB", (0, 1, 0, 1), (0, 0, 1, 1), ((0, 1), (2, 3))),
    ("ABBA", (0, 1, 1, 0), (0, 0, 1, 1), ((0, 1), (2, 3))),
    ("BAAA", (0, 1, 1, 1), (0, 0, 1, 2), ((0, 1), (2,), (3,))),
    ("AAAB", (0, 0, 0, 1), (0, 1, 2, 0), ((0, 3), (1,), (2,))),
    ("ABCC", (0, 1, 2, 2), (0, 0, 0, 1), ((0, 1, 2), (3,))),
    ("ABCACB", (0, 1, 2, 0, 2, 1), (0, 0, 0, 1, 1, 1), ((0, 1, 2), (3, 4, 5))),
]


@pytest.mark.parametrize(("pattern", "nodes", "local_ranks", "rails"), LAYOUTS)
def test_layouts(pattern, nodes, local_ranks, rails):
    topology = world(pattern)
    assert topology.nodes == topology.hosts == nodes
    assert topology.local_ranks == local_ranks
    assert topology.all_inter_node() == rails
    assert topology.hostnames == tuple(f"host{letter}" for letter in dict.fromkeys(pattern))
    assert topology.one_host == (len(set(pattern)) == 1)
    assert topology.notes == ()


def test_one_rank_sees_its_own_node_and_rail():
    topology = world("BAAAB", rank=4)
    assert (topology.rank, topology.world_size, topology.num_nodes) == (4, 5, 2)
    assert (topology.node_rank, topology.local_rank, topology.local_world_size) == (0, 1, 2)
    assert (topology.intra_node, topology.inter_node, topology.leaders) == ((0, 4), (2, 4), (0, 1))
    assert (topology.sizes, topology.smallest_node) == ((2, 3), 2)


letters = st.text(alphabet="ABCDE", min_size=1, max_size=24)


@given(letters)
def test_groups_partition_the_world_and_all_ranks_see_the_same(pattern):
    ranks, gathered = range(len(pattern)), identities_of(pattern)
    views = [resolve(rank, gathered) for rank in ranks]
    for groups in (views[0].all_intra_node(), views[0].all_inter_node()):
        assert sorted(rank for group in groups for rank in group) == list(ranks)
        assert all(list(group) == sorted(group) for group in groups)
    assert views[0].sizes == tuple(pattern.count(letter) for letter in dict.fromkeys(pattern))
    assert views[0].smallest_node == min(views[0].sizes)
    for view in views:
        assert replace(view, rank=0) == views[0]
        assert view.intra_node[view.local_rank] == view.rank
        assert view.intra_node == view.all_intra_node()[view.node_rank]
        assert view.local_world_size == pattern.count(pattern[view.rank])


@given(letters)
def test_a_node_is_a_letter_and_a_rail_has_one_rank_a_letter(pattern):
    topology = world(pattern)
    for ranks in topology.all_intra_node():
        assert len({pattern[rank] for rank in ranks}) == 1
    assert topology.num_nodes == len(set(pattern))
    for place, rail in enumerate(topology.all_inter_node()):
        assert {topology.local_ranks[rank] for rank in rail} == {place}
        long_enough = [letter for letter in set(pattern) if pattern.count(letter) > place]
        assert sorted(pattern[rank] for rank in rail) == sorted(long_enough)
    assert topology.leaders == topology.all_inter_node()[0]


@given(letters, st.integers(1, 26))
def test_divided_cuts_nodes_into_consecutive_pieces(pattern, size):
    whole, cut = world(pattern), world(pattern).divided(size)
    assert (cut.hosts, cut.hostnames) == (whole.hosts, whole.hostnames)
    groups = whole.all_intra_node()
    pieces = [list(ranks[i : i + size]) for ranks in groups for i in range(0, len(ranks), size)]
    assert list(map(list, cut.all_intra_node())) == sorted(pieces)


@given(letters, st.integers(1, 4), st.randoms(use_true_random=False))
def test_subset_keeps_who_shares_a_node(pattern, size, shuffler: random.Random):
    whole = world(pattern).divided(size)
    ranks = shuffler.sample(range(len(pattern)), shuffler.randint(1, len(pattern)))
    views = [replace(whole, rank=rank).subset(ranks) for rank in ranks]
    group = views[0]
    assert [view.rank for view in views] == list(range(len(ranks)))
    for i, one in enumerate(ranks):
        assert group.hostnames[group.hosts[i]] == f"host{pattern[one]}"
        for j, other in enumerate(ranks):
            assert (group.nodes[i] == group.nodes[j]) == (whole.nodes[one] == whole.nodes[other])
            assert (group.hosts[i] == group.hosts[j]) == (whole.hosts[one] == whole.hosts[other])


def test_subset_numbers_anew_and_leaves_the_notes_behind():
    whole = world("AABBCC", rank=4, shared=[0, 1, 2, 2, 4, 4])
    group = whole.subset([5, 2, 4])
    assert group == Topology(2, (0, 1, 0), (0, 1, 0), ("hostC", "hostB"))
    assert whole.notes


@pytest.mark.parametrize("ranks", [[1, 2], [0, 0], [0, 4], [0, -1], []])
def test_subset_refuses(ranks):
    with pytest.raises(TopologyError, match="rank 0"):
        world("AABB").subset(ranks)


def test_pieces_of_no_ranks_are_refused():
    with pytest.raises(OptionError, match="put 0 ranks on a node"):
        world("AABB").divided(0)


CONTRADICTIONS = {
    "rank too high": (2, (0, 0), (0, 0), ("a",)),
    "rank below 0": (-1, (0, 0), (0, 0), ("a",)),
    "no ranks": (0, (), (), ()),
    "fewer hosts than ranks": (0, (0, 0), (0,), ("a",)),
    "nodes out of order": (0, (1, 0), (0, 0), ("a",)),
    "a node left out": (0, (0, 2), (0, 1), ("a", "b")),
    "hosts out of order": (0, (0, 1), (1, 0), ("a", "b")),
    "a node on two hosts": (0, (0, 0), (0, 1), ("a", "b")),
    "a host without a name": (0, (0, 1), (0, 1), ("a",)),
}


@pytest.mark.parametrize("fields", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_fields_that_contradict_each_other(fields):
    with pytest.raises(TopologyError):
        Topology(*fields)


SAME_HOST = [
    (("n1", "x"), ("n1", "x"), True),
    (("n1", "x"), ("n2", "x"), False),
    (("n1", "x"), ("n1", "y"), False),
    (("n1", ""), ("n1", ""), True),
    (("n1", "x"), ("n1", ""), False),
]


@pytest.mark.parametrize(("one", "other", "same"), SAME_HOST)
def test_one_host_means_equal_hostname_and_boot_id(one, other, same):
    assert resolve(0, [NodeIdentity(*pair, None, None, None) for pair in (one, other)]).one_host == same


def test_equal_hostnames_of_two_hosts_are_noted():
    pairs = ("localhost", "x"), ("localhost", "y"), ("n1", "z")
    (note,) = resolve(0, [NodeIdentity(*pair, None, None, None) for pair in pairs]).notes
    assert "under the hostname localhost;" in note


SPLITS = [
    ("AAAABB", [0, 0, 2, 2, 4, 4], ["cuts hostA;"]),
    ("ABBCC", [0, 0, 0, 3, 3], ["joins hostA, hostB;"]),
    ("AABB", [0, 1, 1, 3], ["cuts hostA, hostB;", "joins hostA, hostB;"]),
    ("ABAB", [0, 1, 0, 1], []),
    ("ABAB", [None, None, None, None], []),
]


@pytest.mark.parametrize(("pattern", "shared", "words"), SPLITS)
def test_host_rule_overrules_the_shared_memory_split_and_says_so(pattern, shared, words):
    topology = world(pattern, shared=shared)
    assert topology.nodes == world(pattern).nodes
    assert all(word in note for word, note in zip(words, topology.notes, strict=True))


VIRTUAL = [
    ("AAAA", {"pieces": "2"}, (0, 0, 1, 1)),
    ("AAAA", {"pieces": "3"}, (0, 0, 0, 1)),
    ("AAAA", {"pieces": "9"}, (0, 0, 0, 0)),
    ("ABABAA", {"pieces": "2"}, (0, 1, 0, 1, 2, 2)),
    ("AABB", {"pieces": "1"}, (0, 1, 2, 3)),
    ("AAAA", {"claims": "xyxy"}, (0, 1, 0, 1)),
    ("AAAA", {"claims": "yxxx"}, (0, 1, 1, 1)),
    ("AABB", {"claims": "xyzz"}, (0, 1, 2, 2)),
]


@pytest.mark.parametrize(("pattern", "overrides", "nodes"), VIRTUAL)
def test_virtual_nodes_cut_hosts(pattern, overrides, nodes):
    topology, real = world(pattern, **overrides), world(pattern)
    assert topology.nodes == nodes
    assert (topology.hosts, topology.hostnames) == (real.hosts, real.hostnames)


PIECES, CLAIMS = "HPCCOMM_RANKS_PER_NODE", "HPCCOMM_NODE_ID"
REFUSED = [
    ("AABB", {"pieces": ["2", "2", "2", None]}, TopologyError, {PIECES, "2 on rank 0", "unset on rank 3"}),
    ("AABB", {"pieces": [None, "2", "2", "2"]}, TopologyError, {PIECES, "unset on rank 0", "2 on rank 1"}),
    ("AABB", {"pieces": ["2", "2", "1", "2"]}, TopologyError, {PIECES, "2 on rank 0", "1 on rank 2"}),
    ("AA", {"pieces": "0"}, OptionError, {f"{PIECES}='0'"}),
    ("AA", {"pieces": "-2"}, OptionError, {f"{PIECES}='-2'"}),
    ("AA", {"pieces": "\u0662"}, OptionError, {PIECES}),
    ("AA", {"pieces": ""}, OptionError, {f"{PIECES}=''"}),
    ("AABB", {"claims": ["x", None, "y", None]}, TopologyError, {CLAIMS, "ranks 1,3"}),
    ("AABB", {"claims": "xxyx"}, TopologyError, {f"{CLAIMS}='x'", "ranks 0-1,3"}),
    ("AB", {"claims": "xx"}, TopologyError, {f"{CLAIMS}='x'", "ranks 0-1"}),
    ("AA", {"claims": "xx", "pieces": "1"}, OptionError, {PIECES, CLAIMS}),
    ("AA", {"claims": ["x", None], "pieces": [None, "1"]}, OptionError, {PIECES, CLAIMS}),
]


@pytest.mark.parametrize(("pattern", "overrides", "kind", "words"), REFUSED)
def test_variables_that_are_refused_alike_on_all_ranks(pattern, overrides, kind, words):
    texts = set()
    for rank in range(len(pattern)):
        with pytest.raises(kind) as caught:
            world(pattern, rank=rank, **overrides)
        assert caught.value.everywhere
        texts.add(str(caught.value))
    (text,) = texts
    assert {word for word in words if word in text} == words


def test_identify_reads_this_process():
    mine = identify({"HPCCOMM_NODE_ID": "x", "HPCCOMM_RANKS_PER_NODE": "04"}, 3)
    assert (mine.shared, mine.claimed, mine.ranks_per_node) == (3, "x", "04")
    plain = identify({"HPCCOMM_NODE_ID": "", "HPCCOMM_RANKS_PER_NODE": ""}, None)
    assert plain == NodeIdentity(mine.hostname, mine.boot_id, None, None, None, mine.socket)
    assert resolve(1, [plain, plain]).one_host


def test_identity_and_topology_survive_pickling():
    for value in (identify({}, 0), world("ABAB", rank=3, pieces="1").divided(1)):
        assert pickle.loads(pickle.dumps(value)) == value


MAPS = [
    ("A", {}, "1 rank on 1 node: hostA 0"),
    ("AAAABBBB", {}, "8 ranks on 2 nodes (4 + 4), by slot: hostA 0-3, hostB 4-7"),
    ("BAAA", {}, "4 ranks on 2 nodes (1 + 3), by slot: hostB 0, hostA 1-3"),
    ("ABAB", {}, "4 ranks on 2 nodes (2 + 2), by node: hostA 0,2, hostB 1,3"),
    ("ABCAB", {}, "5 ranks on 3 nodes (2 + 2 + 1), by node: hostA 0,3, hostB 1,4, hostC 2"),
    ("ABBA", {}, "4 ranks on 2 nodes (2 + 2), irregular: hostA 0,3, hostB 1-2"),
    ("AAA", {"pieces": "2"}, "3 ranks on 2 virtual nodes of 1 host (2 + 1), by slot: hostA/0 0-1, hostA/1 2"),
    ("AB", {"claims": "xy"}, "2 ranks on 2 nodes (1 + 1), by slot: hostA 0, hostB 1"),
    ("AAAA", {"pieces": "4"}, "4 ranks on 1 node: hostA 0-3"),
]


@pytest.mark.parametrize(("pattern", "overrides", "text"), MAPS)
def test_describe(pattern, overrides, text):
    topology = world(pattern, **overrides)
    assert topology.describe() == str(topology) == text


def hosts_in_a_row(sizes):
    hosts = [f"n{host + 1}" for host, size in enumerate(sizes) for _ in range(size)]
    return resolve(0, [NodeIdentity(host, "", None, None, None) for host in hosts])


def test_describe_shortens_long_lists():
    text = hosts_in_a_row([4] * 1000).describe()
    assert text.startswith("4000 ranks on 1000 nodes (1000 x 4), by slot: n1 0-3, n2 4-7, ")
    assert text.endswith(", ..., n1000 3996-3999")
    assert "(998 x 4 + 2 x 3)" in hosts_in_a_row([4] * 500 + [3, 3] + [4] * 498).describe()
    assert len(hosts_in_a_row(range(1, 100)).describe()) < 200
    assert str(world("AAB", pieces="1")).startswith("3 ranks on 3 virtual nodes of 2 hosts (1 + 1 + 1), ")
    (note,) = world([chr(97 + rank // 2) for rank in range(40)], shared=list(range(40))).notes
    assert "cuts hosta, hostb, hostc, ..., hostt;" in note
    assert world("AB" * 20).describe().endswith("by node: hostA 0,2,4,...,38, hostB 1,3,5,...,39")


def test_ten_thousand_ranks():
    size, hosts = 10_000, 1250
    gathered = [NodeIdentity(f"n{rank % hosts}", "", rank % hosts, None, None) for rank in range(size)]
    for rank in (0, 4321, size - 1):
        topology = resolve(rank, gathered)
        assert topology.intra_node == tuple(range(rank % hosts, size, hosts))
        assert topology.local_rank == rank // hosts
        assert topology.inter_node == tuple(range(rank // hosts * hosts, (rank // hosts + 1) * hosts))
        assert topology.leaders == tuple(range(hosts))
        assert topology.divided(4).num_nodes == 2 * hosts
        assert topology.subset(topology.inter_node).num_nodes == hosts
        assert len(str(topology)) < 300
