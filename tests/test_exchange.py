"""Exchange of small objects over a torch store (ranks are threads) and over MPI (ranks are processes)."""

import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch.distributed import FileStore, HashStore, TCPStore

from harness import run_job
from hpccomm.errors import BackendError, DeadlineError, HpccommError, LaunchError, TopologyError
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


def test_ranks_that_do_not_come_are_named():
    store = HashStore()
    store.set_timeout(timedelta(milliseconds=50))
    store.set("1/2", pickle.dumps("here"))
    exchange = StoreExchange(store, 0, 4, "start-up")
    exchange.describe = lambda rank: f"rank {rank} (lost)"
    with pytest.raises(DeadlineError) as caught:
        exchange.all_gather("here", "gather of settings")
    assert caught.value.asked == "start-up: gather of settings of 4 ranks over the store"
    assert caught.value.found == "nothing from rank 1 (lost), rank 3 (lost) within 50 ms"


def test_store_that_fails_is_told():
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=LONG)
    client = TCPStore("127.0.0.1", server.port, timeout=LONG)
    del server
    with pytest.raises(LaunchError, match="the store fails") as caught:
        StoreExchange(client, 1, 2).all_gather("here")
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


def test_own_error_is_the_cause_where_the_others_do_not_come():
    store, own = HashStore(), fault("no device")
    store.set_timeout(timedelta(milliseconds=50))
    with pytest.raises(DeadlineError, match="nothing from rank 1") as caught:
        agree(StoreExchange(store, 0, 2), own)
    assert caught.value.__cause__ is own


class Alone:
    """An exchange of one rank that hands over the object itself."""

    rank, size = 0, 1

    def all_gather(self, value, call="gather"):
        return [value]


def test_the_rank_at_fault_shows_its_own_traceback_and_keeps_its_error():
    own = fault("no device")
    with pytest.raises(BackendError) as caught:
        agree(Alone(), own)
    assert caught.value.__cause__ is own
    assert caught.value.everywhere
    assert not own.everywhere


PROGRAM = """
import json, sys, time
from mpi4py import MPI
from hpccomm.errors import HpccommError, OptionError
from hpccomm.exchange import MpiExchange, agree

def same(length):
    values = [bytes([rank]) * length for rank in range(exchange.size)]
    return exchange.all_gather(values[exchange.rank]) == values

def uneven(length):
    values = [b"x" * length * rank for rank in range(exchange.size)]
    return exchange.all_gather(values[exchange.rank]) == values

def late(call):
    if exchange.rank == call % exchange.size:
        time.sleep(1.2)
    return exchange.all_gather((call, exchange.rank), str(call)) == [(call, rank) for rank in range(exchange.size)]

exchange = MpiExchange(MPI.COMM_WORLD.Dup(), timeout_s=60, quiet_s=0.4, name="test")
values = exchange.all_gather({"rank": exchange.rank})
agree(exchange, None)
try:
    agree(exchange, OptionError("read", found="x", remedy="y") if exchange.rank == 1 else None)
except HpccommError as error:
    outcome = [type(error).__name__, error.found, error.everywhere]
right = all(same(length) and uneven(length) for length in (0, 1, 997, 65537, 1000001))
exchange.largest = 100
right = right and all(same(length) and uneven(length) for length in (0, 1, 33, 5001))
right = right and all([late(call) for call in range(5)]) and exchange.arrive("end")
outcomes = exchange.all_gather([exchange.size, values, outcome, right])
exchange.close()
if exchange.rank == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(outcomes, file)
"""


def test_over_mpi(mpi, tmp_path):
    file = tmp_path / "outcomes.json"
    result = run_job(mpi, 3, [mpi.python, "-c", PROGRAM, str(file)])
    assert result.returncode == 0, str(result)
    expected = [3, [{"rank": rank} for rank in range(3)], ["OptionError", "rank 1: x", True], True]
    assert json.loads(file.read_text()) == [expected] * 3
    reports = re.findall(r"hpccomm: (rank . and 1 other) have waited \S+ m?s for (rank .) \(test: (.)\)", result.stderr)
    late = [("rank 0 and 1 other", f"rank {call % 3}", str(call)) for call in range(5)]
    assert list(dict.fromkeys(reports)) == [
        ("rank 1 and 1 other", *rest) if rest[0] == "rank 0" else (who, *rest) for who, *rest in late
    ]
