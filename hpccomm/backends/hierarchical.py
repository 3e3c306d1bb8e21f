"""Combinator `hierarchical(intra, inter, by=node)`: one backend inside nodes, another across them.

Every node is cut into as many shards as the smallest node has ranks. Rank j of each node carries shard j: its group
across the nodes is rail j. Ranks past the smallest size take part inside their node only. An all-reduce of S bytes
over k nodes moves 2(k-1)/k * S bytes out of each node, half of that with a 16-bit wire. Any placement of ranks and any
node sizes are served, since all indices come from the topology.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from hpccomm.algorithms.hierarchical import SHARD_BYTES
from hpccomm.backends.alongside import Begun, alongside
from hpccomm.backends.base import Backend, Operation, bad_option, offsets, uneven
from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.context import Context
from hpccomm.backends.device import Device, device_of
from hpccomm.backends.layout import pieces
from hpccomm.backends.rails import Rails
from hpccomm.backends.registry import build
from hpccomm.backends.staged import staged
from hpccomm.backends.support import HALVES
from hpccomm.backends.wire import DTYPES, all_reduce_narrow
from hpccomm.exchange import together
from hpccomm.expression import Expression

_MOST_CROSSING = 3  # pieces at once, where the backend between nodes can have several under way

Crossing = tuple[torch.Tensor, torch.Tensor, list[int], Begun]
"""A piece, its shard on this rank's rail, the shards' counts, and the reduction over the nodes."""


class HierarchicalBackend(Backend):
    """Reduce inside the node, across the nodes on every rail at once, and gather inside the node.

    Floats of 16 bits are reduced in float32 through all levels and rounded once.

    Args:
        context: The group.
        intra: The backend among the ranks of one node.
        inter: The backend among the ranks of one rail.
        by: What a node is: ``node``, ``socket``, ``switch``, or a number of ranks by which each node is cut.
        wire: The dtype in which sums of float32 cross between nodes: ``bfloat16``, ``float16``, or none other.
    """

    def __init__(
        self, context: Context, intra: Expression, inter: Expression, *, by: str | int = "node", wire: str = "float32"
    ) -> None:
        super().__init__(context)
        self._topology = context.topology.by(by)
        topology = self._topology
        self._carriers = topology.smallest_node
        self._local = topology.local_rank
        self._has_idle = topology.local_world_size > self._carriers
        # All ranks agree on each part: where one node cannot build its own, the others must not wait for it in the next
        self._intra = together(context.exchange, lambda: build(intra, context.split(topology.intra_node, "intra")))
        self._peers = together(context.exchange, lambda: build(inter, context.child("peers")))
        self._rail = together(context.exchange, lambda: self._build_rail(inter))
        self._meet_on_device(device_of(context.device))
        self.support = self._intra.support.joined(self._peers.support).without(HALVES)
        self.max_count = min(self._intra.max_count, self._peers.max_count)
        self.notes = [*self._intra.notes, *self._peers.notes]
        self.is_urgent = self._intra.is_urgent or self._peers.is_urgent
        self._wire = _wire_asked(wire)
        self._most_crossing = _MOST_CROSSING if self._peers.overlaps and self._wire is None else 1

    def _build_rail(self, inter: Expression) -> Backend | None:
        """Build this rank's rail; None where it has none."""
        topology = self._topology
        if self._local >= self._carriers or topology.num_nodes == 1:
            return None
        rail = sorted(topology.inter_node, key=topology.nodes.__getitem__)
        return build(inter, self.context.split(rail, f"rail{self._local}"))

    def _meet_on_device(self, device: Device | None) -> None:
        """Stage the level of host memory where the other one is a GPU's."""
        if "cuda" in self._intra.support.devices | self._peers.support.devices:
            self._intra, self._peers = staged(self._intra, device), staged(self._peers, device)
            self._rail = None if self._rail is None else staged(self._rail, device)

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Reduce-scatter inside the node, all-reduce on the rails, all-gather inside the node, a piece after the other.

        While a piece crosses, the next one is reduced inside the node.
        """
        flat = buffer.view(-1)
        crossing: deque[Crossing] = deque()
        try:
            for start, end in pieces(flat.numel(), self._carriers * SHARD_BYTES // flat.element_size()):
                piece = flat[start:end]
                counts = self._shards(piece.numel())
                shard = piece.new_empty(counts[self._local])
                reducing = self._intra.reduce_scatter(shard, piece, op, uneven(counts))
                yield from alongside(reducing, [begun for *_, begun in crossing])
                if len(crossing) == self._most_crossing:
                    yield from self._land(crossing)
                crossing.append((piece, shard, counts, Begun(self._cross(shard, op))))
            while crossing:
                yield from self._land(crossing)
        finally:
            for *_, begun in crossing:
                begun.close()

    def _cross(self, shard: torch.Tensor, op: Op) -> Operation:
        """Reduce a shard over the nodes."""
        if self._rail is None or not shard.numel():
            return
        if self._wire is not None and op == ReduceOp.SUM and shard.dtype == torch.float32:
            yield from all_reduce_narrow(self._rail, shard, self._wire, self.size)
        else:
            yield from self._rail.all_reduce(shard, op)

    def _land(self, crossing: deque[Crossing]) -> Operation:
        """Wait for the first shard that crosses, and gather its piece inside the node."""
        piece, shard, counts, begun = crossing[0]
        yield from begun.finish()
        crossing.popleft()
        gathering = self._intra.all_gather(piece, shard, uneven(counts))
        yield from alongside(gathering, [begun for *_, begun in crossing])

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Broadcast inside the root's node, shards on the rails, all-gather inside the other nodes."""
        topology, flat = self._topology, buffer.view(-1)
        home = topology.nodes[root]
        if topology.node_rank == home:
            yield from self._intra.broadcast(flat, topology.local_ranks[root])
        counts = self._shards(flat.numel())
        start = offsets(counts)[self._local]
        shard = flat[start : start + counts[self._local]]
        if self._rail is not None and shard.numel():
            yield from self._rail.broadcast(shard, home)
        if topology.node_rank != home:
            yield from self._intra.all_gather(flat, shard, uneven(counts))

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Reduce inside the node what each rail carries, then on the rails, and hand on what ranks past them own."""
        counts = counts or [output.numel()] * self.size
        rails, local, everyone = Rails(self._topology, self._carriers, counts), self._local, range(self.size)
        part = output.new_empty(rails.on_rail(local))
        sent = rails.blocks(source.view(-1), rails.travelling, everyone)
        yield from self._intra.reduce_scatter(part, sent, op, uneven(rails.by_local_rank))
        mine = part
        if self._rail is not None and part.numel():
            mine = part.new_empty(rails.here_by_local_rank[local])
            yield from self._rail.reduce_scatter(mine, part, op, uneven(rails.by_node(local)))
        if self._has_idle:
            node = output.new_empty(sum(rails.here_by_local_rank))
            yield from self._intra.all_gather(node, mine, rails.here_by_local_rank)
            mine = rails.blocks(node, [self.rank], rails.travelling_here)
        output.view(-1).copy_(mine)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Collect on the rails what each node's carriers hold, then inside the node, and order by rank."""
        counts = counts or [source.numel()] * self.size
        rails, local, everyone = Rails(self._topology, self._carriers, counts), self._local, range(self.size)
        mine = source.view(-1)
        if self._has_idle:
            here = self._topology.intra_node
            shares = [counts[rank] for rank in here]
            node = mine.new_empty(sum(shares))
            yield from self._intra.all_gather(node, mine, uneven(shares))
            mine = rails.blocks(node, rails.here(local), here)
        part = mine
        if self._rail is not None and rails.on_rail(local):
            part = mine.new_empty(rails.on_rail(local))
            yield from self._rail.all_gather(part, mine, uneven(rails.by_node(local)))
        whole = mine.new_empty(output.numel())
        yield from self._intra.all_gather(whole, part, uneven(rails.by_local_rank))
        output.view(-1).copy_(rails.blocks(whole, everyone, rails.travelling))

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Gather over the backend between nodes: every block takes one way only."""
        return self._peers.gather(output, source, root)

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Scatter over the backend between nodes."""
        return self._peers.scatter(output, source, root)

    def barrier(self) -> Operation:
        """Wait inside the node, among the leaders, and inside the node again."""
        yield from self._intra.barrier()
        if self._rail is not None and self._local == 0:
            yield from self._rail.barrier()
        yield from self._intra.barrier()

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Send inside the node or across, by where `dest` is."""
        leg, peer = self._leg(dest)
        return leg.send(buffer, peer, tag)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Receive from inside the node or across, by where `source` is."""
        leg, peer = self._leg(source)
        return leg.recv(buffer, peer, tag)

    def close(self) -> None:
        """Close all legs, outer ones first."""
        for leg in (self._rail, self._peers, self._intra):
            if leg is not None:
                leg.close()
        super().close()

    def _leg(self, rank: int) -> tuple[Backend, int]:
        if self._topology.nodes[rank] == self._topology.node_rank:
            return self._intra, self._topology.local_ranks[rank]
        return self._peers, rank

    def _shards(self, count: int) -> list[int]:
        share, rest = divmod(count, self._carriers)
        idle = self._topology.local_world_size - self._carriers
        return [share + (shard < rest) for shard in range(self._carriers)] + [0] * idle


def _wire_asked(wire: str) -> torch.dtype | None:
    """Give the dtype, or None for float32 as it is."""
    if wire == "float32":
        return None
    if wire not in DTYPES:
        raise bad_option("hierarchical", "wire", wire, f"{', '.join(DTYPES)} or float32")
    return DTYPES[wire]
