"""From the node identities that all ranks gathered to a `Topology`; pure, so all ranks come to the same.

Two ranks are on one host exactly if their hostname and their boot id are equal. Each host is one node unless
HPCCOMM_RANKS_PER_NODE or HPCCOMM_NODE_ID cuts hosts into virtual nodes; nothing joins two hosts. MPI's
shared-memory split is only compared with that rule: it may stop at NUMA domains, and launchers get it wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hpccomm.errors import HpccommError, OptionError, TopologyError
from hpccomm.topology.grouping import grouped, listed, numbered, ranges
from hpccomm.topology.identity import NodeIdentity
from hpccomm.topology.topology import Topology

_FORWARD = "on all ranks (by mpirun -x, mpiexec -genv or srun --export)"


def resolve(rank: int, identities: Sequence[NodeIdentity]) -> Topology:
    """Find who shares a node with whom, as seen from `rank`, given the identity of every rank in rank order.

    Raises:
        TopologyError: A variable differs among ranks, or one HPCCOMM_NODE_ID is claimed on two hosts.
        OptionError: HPCCOMM_RANKS_PER_NODE is no positive integer, or both variables are set.
    """
    hosts = numbered((identity.hostname, identity.boot_id) for identity in identities)
    hostnames = tuple(identities[ranks[0]].hostname for ranks in grouped(hosts))
    claims = [identity.claimed for identity in identities]
    pieces = [identity.ranks_per_node for identity in identities]
    _check_variables(claims, pieces, hosts)
    notes = _disagreements([identity.shared for identity in identities], hosts, hostnames)
    nodes = numbered(zip(hosts, claims, strict=True))
    topology = Topology(rank, nodes, hosts, hostnames, notes, _levels(identities, hosts))
    return topology if pieces[0] is None else topology.divided(int(pieces[0]))


def _levels(identities: Sequence[NodeIdentity], hosts: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Group ranks by socket and by switch, where every rank knows its own."""
    levels = {}
    if all(identity.socket is not None for identity in identities):
        levels["socket"] = numbered(zip(hosts, (identity.socket for identity in identities), strict=True))
    if all(identity.switch is not None for identity in identities):
        levels["switch"] = numbered(identity.switch for identity in identities)
    return levels


def _check_variables(claims: list[str | None], pieces: list[str | None], hosts: Sequence[int]) -> None:
    if any(claims) and any(pieces):
        raise _refusal(OptionError, "HPCCOMM_NODE_ID and HPCCOMM_RANKS_PER_NODE are both set", "unset one")
    other = next((rank for rank, value in enumerate(pieces) if value != pieces[0]), None)
    if other is not None:
        one, two = (f"{pieces[rank] or 'unset'} on rank {rank}" for rank in (0, other))
        raise _refusal(TopologyError, f"HPCCOMM_RANKS_PER_NODE is {one}, {two}", f"set one value {_FORWARD}")
    if pieces[0] is not None and not re.fullmatch("[1-9][0-9]{0,8}", pieces[0]):
        raise _refusal(OptionError, f"HPCCOMM_RANKS_PER_NODE={pieces[0]!r}", "set it to a positive integer")
    unset = [rank for rank, claim in enumerate(claims) if not claim]
    if 0 < len(unset) < len(claims):
        found = f"HPCCOMM_NODE_ID is unset on ranks {ranges(unset)} and set on the others"
        raise _refusal(TopologyError, found, f"unset it or set it {_FORWARD}")
    for ranks in [] if unset else grouped(numbered(claims)):
        if len({hosts[rank] for rank in ranks}) > 1:
            found = f"HPCCOMM_NODE_ID={claims[ranks[0]]!r} on ranks {ranges(ranks)} of several hosts"
            raise _refusal(TopologyError, found, "set HPCCOMM_NODE_ID differently on different hosts")


def _refusal(kind: type[HpccommError], found: str, remedy: str) -> HpccommError:
    return kind("cut hosts into virtual nodes", found=found, remedy=remedy, everywhere=True)


def _disagreements(shared: list[int | None], hosts: Sequence[int], names: Sequence[str]) -> tuple[str, ...]:
    pairs = {(split, host) for split, host in zip(shared, hosts, strict=True) if split is not None}
    splits_of, hosts_of = Counter(host for _, host in pairs), Counter(split for split, _ in pairs)
    finer = {names[host] for host in splits_of if splits_of[host] > 1}
    joined = {names[host] for split, host in pairs if hosts_of[split] > 1}
    alike = {name for name, count in Counter(names).items() if count > 1}
    texts = {
        "MPI's shared-memory split cuts {}; each still counts as one host": finer,
        "MPI's shared-memory split joins {}; by hostname and boot id they count as separate hosts": joined,
        "several boot ids under the hostname {}; they count as separate hosts": alike,
    }
    return tuple(text.format(listed(sorted(found))) for text, found in texts.items() if found)
