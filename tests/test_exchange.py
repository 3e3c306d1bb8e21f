"""Exchange of small objects over a torch store (ranks are threads) and over MPI (ranks are processes)."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import FileStore, HashStore, TCPStore

from harness import run_job
from hpccomm.errors import BackendError, HpccommError, LaunchError, TopologyError
from hpccomm.exchange import StoreExchange, agree

LONG = timedelta(seconds=20)


def hash_stores(size, folder):
    return [HashStore()] * size


def tcp_stores(size, folder):
    """One client a rank: a TCPStore serves one call at a time, so threads that share it block each other."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=LONG)
    return [server, *(TCPStore("127.0.0.1", server.port, timeout=LONG) for _ in range(size - 1))]


def file_stores(size, folder):
    return [FileStore(str(folder / "store")) for _ in range(size)]


def on_each_rank(stores, function):
    """Run function(exchange) on all ranks at once; give the results, errors among them, in rank order."""
    size = len(stores)

    def run(rank):
        try:
            return function(StoreExchange(stores[rank], rank, size))
        except HpccommError as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


@pytest.mark.parametrize("make_stores", [hash_stores, tcp_stores, file_stores])
@pytest.mark.parametrize("size", [1, 3])
def test_every_rank_gets_all_values_in_rank_order(make_stores, size, tmp_path):
    def three_calls(exchange):
        return [exchange.all_gather((call, exchange.rank, {"host": None})) for call in range(3)]

    expected = [[(call, rank, {"host": None}) for rank in range(size)] for call in range(3)]
    assert on_each_rank(make_stores(size, tmp_path), three_calls) == [expected] * size


def test_a_rank_that_does_not_come_is_named():
    store = HashStore()
    store.set_timeout(timedelta(milliseconds=50))
    with pytest.raises(LaunchError, match="nothing from rank 1") as caught:
        StoreExchange(store, 0, 2).all_gather("here")
    assert "2 ranks" in caught.value.asked


def fault(found, kind=BackendError):
    return kind("build gloo", found=found, remedy="mend it")


@pytest.mark.parametrize(
    ("errors", "kind", "found"),
    [
        ([fault("no device")], BackendError, "no device"),
        ([fault("no device")] * 3, BackendError, "no device"),
        ([None, fault("no device"), None], BackendError, "rank 1: no device"),
        ([None, fault("one"), fault("two", TopologyError)], BackendError, "rank 1: one"),
        ([fault("two", TopologyError), fault("one"), None], TopologyError, "rank 0: two"),
        ([None, None, KeyError("x")], HpccommError, "rank 2: KeyError: 'x'"),
    ],
)
def test_all_ranks_raise_the_error_of_the_lowest_rank_that_has_one(errors, kind, found):
    stores = [HashStore()] * len(errors)
    raised = on_each_rank(stores, lambda exchange: agree(exchange, errors[exchange.rank]))
    assert [type(error) for error in raised] == [kind] * len(errors)
    assert {error.found for error in raised} == {found}
    assert len({str(error) for error in raised}) == 1
    assert all(error.everywhere for error in raised)


@pytest.mark.parametrize("size", [1, 3])
def test_without_an_error_nothing_is_raised(size):
    assert on_each_rank([HashStore()] * size, lambda exchange: agree(exchange, None)) == [None] * size


class Alone:
    """An exchange of one rank that hands over the object itself."""

    rank, size = 0, 1

    def all_gather(self, value):
        return [value]


def test_the_rank_at_fault_shows_its_own_traceback_and_keeps_its_error():
    own = fault("no device")
    with pytest.raises(BackendError) as caught:
        agree(Alone(), own)
    assert caught.value.__cause__ is own
    assert caught.value.everywhere
    assert not own.everywhere


PROGRAM = """
import json, sys
from mpi4py import MPI
from hpccomm.errors import HpccommError, OptionError
from hpccomm.exchange import MpiExchange, agree

exchange = MpiExchange(MPI.COMM_WORLD)
values = exchange.all_gather({"rank": exchange.rank})
agree(exchange, None)
try:
    agree(exchange, OptionError("read", found="x", remedy="y") if exchange.rank == 1 else None)
except HpccommError as error:
    outcome = [type(error).__name__, error.found, error.everywhere]
outcomes = exchange.all_gather([exchange.size, values, outcome])
if exchange.rank == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(outcomes, file)
"""


def test_over_mpi(mpi, tmp_path):
    file = tmp_path / "outcomes.json"
    result = run_job(mpi, 3, [mpi.python, "-c", PROGRAM, str(file)])
    assert result.returncode == 0, str(result)
    expected = [3, [{"rank": rank} for rank in range(3)], ["OptionError", "rank 1: x", True]]
    assert json.loads(file.read_text()) == [expected] * 3
