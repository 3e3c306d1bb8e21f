"""The job's store: served by rank 0 on a socket bound beforehand, on one address only.

The kernel chooses the port unless the user names one, so two jobs on a host never meet. It knows no groups.
"""

from __future__ import annotations

from datetime import timedelta

from hpccomm.backends.c10d import PrefixStore, Store, TCPStore
from hpccomm.errors import HpccommError, NetworkError
from hpccomm.exchange import Exchange
from hpccomm.network import listen


def serve(exchange: Exchange, address: str, *, port: int, timeout_s: float) -> tuple[TCPStore, tuple[str, int]]:
    """Serve a store from rank 0 and connect every rank to it; collective.

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
    served: TCPStore | None = None
    told: tuple[str, int] | HpccommError | None = None
    limit = timedelta(seconds=timeout_s)
    if exchange.rank == 0:
        try:
            socket = listen(address, port)
            bound = int(socket.getsockname()[1])
            served = TCPStore(
                address,
                bound,
                exchange.size,
                is_master=True,
                timeout=limit,
                wait_for_workers=False,
                master_listen_fd=socket.detach(),
            )
            told = address, bound
        except NetworkError as error:
            error.everywhere = True
            told = error
    found = exchange.all_gather(told)[0]
    if isinstance(found, HpccommError):
        raise found
    assert found is not None
    host, bound = found
    store = served or TCPStore(host, bound, exchange.size, is_master=False, timeout=limit, wait_for_workers=False)
    return store, (host, bound)


def fresh(store: Store, size: int) -> Store:
    """Give a part of a store without the keys of earlier groups; collective over its ranks.

    Torch counts groups anew after the default group is destroyed, and may bring the same store again. The ranks
    count their arrivals instead: those of one attempt are all there before the first of the next.

    Args:
        store: What torch brings for one group.
        size: How many ranks share it.
    """
    attempt = (store.add("hpccomm/arrivals", 1) - 1) // size
    return PrefixStore(f"hpccomm/{attempt}", store)
