"""The job's store: served by rank 0 on a socket bound beforehand, on one address only.

The kernel chooses the port unless the user names one, so two jobs on a host never meet. It knows no groups.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from hpccomm.backends.c10d import PrefixStore, Store, TCPStore
from hpccomm.errors import DeadlineError, HpccommError, NetworkError
from hpccomm.exchange import Exchange
from hpccomm.network import listen

_Endpoint = tuple[str, int]
_served: tuple[TCPStore, _Endpoint] | None = None
_serves = False  # this process does


def serve(exchange: Exchange, address: str, *, port: int, timeout_s: float) -> tuple[TCPStore, _Endpoint]:
    """Serve a store from rank 0 and connect every rank to it; collective.

    It is served until the process ends and found again by later calls, as groups that a program still holds keep it
    alive, and its port taken.

    Args:
        exchange: Reaches all ranks.
        address: This rank's own address; rank 0's is the store's.
        port: The port asked for, or 0 for one that is free.
        timeout_s: Deadline of the store's operations.

    Returns:
        The store, and the address and port that serve it.

    Raises:
        NetworkError: The same on all ranks: rank 0 cannot listen there.
    """
    global _served, _serves
    told: _Endpoint | HpccommError | None = None
    limit = timedelta(seconds=timeout_s)
    if exchange.rank == 0:
        try:
            if _served is None or not _serves or _served[1] != (address, port or _served[1][1]):
                _served, _serves = _listening(address, port, exchange.size, limit), True
            told = _served[1]
        except NetworkError as error:
            error.everywhere = True
            told = error
    found = exchange.all_gather(told)[0]
    if isinstance(found, HpccommError):
        raise found
    assert found is not None
    if _served is None or _served[1] != found:
        store = TCPStore(*found, exchange.size, is_master=False, timeout=limit, wait_for_workers=False)
        _served, _serves = (store, found), False
    _served[0].set_timeout(limit)
    return _served


def _listening(address: str, port: int, size: int, limit: timedelta) -> tuple[TCPStore, _Endpoint]:
    socket = listen(address, port)
    bound = int(socket.getsockname()[1])
    descriptor = socket.detach()
    store = TCPStore(
        address,
        bound,
        size,
        is_master=True,
        timeout=limit,
        wait_for_workers=False,
        master_listen_fd=descriptor,
    )
    return store, (address, bound)


def fresh(store: Store, ranks: Sequence[int], purpose: str) -> Store:
    """Give a part of a store without the keys of earlier groups; collective over the ranks that share it.

    Torch counts groups anew after the default group is destroyed, and may bring the same store again. The ranks
    count their arrivals instead: those of one attempt are all there before the first of the next.

    Args:
        store: What torch brings for one group.
        ranks: The group's ranks, in order.
        purpose: Tells the calls of one start apart. Between two calls with one purpose the ranks must have met.
    """
    group = f"hpccomm/{purpose}/{sha256(repr(list(ranks)).encode()).hexdigest()[:16]}"
    attempt = (store.add(f"{group}/arrivals", 1) - 1) // len(ranks)
    return PrefixStore(f"{group}/{attempt}", store)


def meet(
    store: Store,
    ranks: Sequence[int],
    rank: int,
    *,
    timeout_s: float,
    asked: str,
    remedy: str,
) -> None:
    """Wait for some ranks to come, and to know that all have; none is left behind alone.

    Args:
        store: What only this meeting writes to.
        ranks: The ranks.
        rank: This one.
        timeout_s: How long to wait.
        asked: What they meet for, for the error.
        remedy: What to do where they do not.

    Raises:
        DeadlineError: Ranks did not come in time; the text says which.
    """
    end, gave_up = time.monotonic() + timeout_s, {other: f"gave up/{other}" for other in ranks}
    store.delete_key(gave_up[rank])  # of an earlier try
    for stage in ("came", "saw all"):
        keys = {other: f"{stage}/{other}" for other in ranks}
        store.set(keys[rank], "")
        try:
            store.wait(list(keys.values()), timedelta(seconds=max(end - time.monotonic(), 0.1)))
        except RuntimeError as error:
            absent = [other for other, key in keys.items() if not store.check([key])]
            absent = [other for other in absent if not store.check([gave_up[other]])] or absent
            store.set(gave_up[rank], "")  # first, so that the others do not take it for one that has not come
            store.delete_key(keys[rank])
            raise DeadlineError(
                asked, found=f"no sign of rank {', '.join(map(str, absent))} within {timeout_s:g} s", remedy=remedy
            ) from error
