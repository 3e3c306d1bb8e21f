"""Matrices of pairs that nobody measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpccomm.bench.pairs.matrix import Edge, Matrix

RATE, LATENCY_US = 1.0, 20.0

Hosts = tuple[int, ...]


def by_slot(hosts: int, slots: int) -> Hosts:
    return tuple(rank // slots for rank in range(hosts * slots))


def matrix_of(hosts: Hosts, slow: Mapping[tuple[int, int], float] | None = None, **changed: Any) -> Matrix:
    """Give pairs of 1 GB/s and 20 us, a little uneven, but for those whose rate is so many times as slow."""

    def edge(source: int, dest: int) -> Edge:
        uneven = 1 + 0.04 * ((7 * source + 3 * dest) % 5)
        times = uneven * (slow or {}).get((source, dest), 1.0)
        return Edge(source, dest, LATENCY_US * uneven, RATE / times)

    ranks = range(len(hosts))
    made = Matrix(
        backend="mpi4py",
        message_bytes=1 << 20,
        iterations=5,
        hosts=hosts,
        hostnames=tuple(f"node{host + 1}" for host in sorted({*hosts})),
        oversubscribed=False,
        rounds=3,
        all_rounds=3,
        edges=tuple(edge(source, dest) for source in ranks for dest in ranks if source != dest),
    )
    return replace(made, **changed)


def touching(hosts: Hosts, host: int) -> list[tuple[int, int]]:
    """Give the pairs of a host with other hosts, both directions."""
    pairs = [(source, dest) for source in range(len(hosts)) for dest in range(len(hosts))]
    return [(a, b) for a, b in pairs if hosts[a] != hosts[b] and host in (hosts[a], hosts[b])]
