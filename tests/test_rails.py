"""Rails: every block travels once, whatever the nodes."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hpccomm.backends.rails import Rails
from hpccomm.topology import NodeIdentity, Topology, resolve

NODES = st.lists(st.integers(0, 3), min_size=1, max_size=9)


def topology(rank: int, nodes: list[int]) -> Topology:
    return resolve(rank, [NodeIdentity(f"n{node}", "boot", None, None, None) for node in nodes])


@given(NODES.flatmap(lambda nodes: st.tuples(st.just(nodes), st.tuples(*[st.integers(0, 4)] * len(nodes)))))
def test_blocks_travel_once_and_come_back_in_order(case) -> None:
    nodes, counts = case
    everyone = range(len(nodes))
    flat = torch.cat([torch.full((count,), float(rank)) for rank, count in enumerate(counts)])
    for rank in everyone:
        seen = topology(rank, nodes)
        rails = Rails(seen, seen.smallest_node, counts)
        assert sorted(rails.travelling) == list(everyone)
        assert sum(rails.by_local_rank) == sum(counts)
        assert sorted(rails.travelling_here) == list(seen.intra_node)
        assert sum(rails.here_by_local_rank) == sum(counts[other] for other in seen.intra_node)
        for rail in range(seen.smallest_node):
            assert sum(rails.by_node(rail)) == rails.on_rail(rail)
            assert rails.by_node(rail)[seen.node_rank] == rails.here_by_local_rank[rail]
            assert sum(counts[other] for other in rails.here(rail)) == rails.here_by_local_rank[rail]
        sent = rails.blocks(flat, rails.travelling, everyone)
        assert torch.equal(rails.blocks(sent, everyone, rails.travelling), flat)
