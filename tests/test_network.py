"""Network: which address every other host can reach, and listening on that address only."""

import ipaddress
import pickle
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccomm.errors import HpccommError, NetworkError, OptionError
from hpccomm.network import Interface, choose, interfaces, listen, select, source_address


def on(name, address, *, speed=0, is_up=True):
    """An interface from its name and address/prefix."""
    ip = ipaddress.ip_interface(address)
    return Interface(name, str(ip.ip), ip.network.prefixlen, is_up, ip.is_loopback, speed)


LO = (on("lo", "127.0.0.1/8"), on("lo", "::1/128"))
DOCKER = on("docker0", "172.17.0.1/16", speed=10_000)
ETH = [on("eth0", f"10.0.0.{host}/24", speed=1000) for host in range(9)]
FAST = [on("ib0", f"10.9.0.{host}/24", speed=100_000) for host in range(9)]
SIX = [on("eth0", f"fd00::{host}/64", speed=1000) for host in range(9)]
FAR = [on("eth0", f"10.0.{host}.7/24", speed=1000) for host in range(9)]
FAR_SIX = [on("eth0", f"fd00:{host}::7/64") for host in range(9)]
LINK = [on("eth0", f"fe80::{host}/64") for host in range(9)]


SIX_FAST = [on("ib0", f"fd09::{host}/64", speed=9000) for host in range(9)]
ODD, SLOW, DOWN = on("en0", "10.0.0.2/24"), on("ib0", "10.9.0.2/24", speed=9), on("ib0", "10.9.0.2/24", is_up=False)
TWICE = [[on("a", f"10.0.10.{host}/24"), on("b", f"10.0.9.{host}/24")] for host in range(9)]

# interfaces of every host, HPCCOMM_INTERFACE, address chosen on every host
SELECTED = {
    "one host": ([[ETH[1], *LO]], None, "127.0.0.1"),
    "one host, no IPv4 loopback": ([[ETH[1], LO[1]]], None, "::1"),
    "one host, second loopback address": ([[on("lo", "127.0.1.1/8"), *LO]], None, "127.0.0.1"),
    "one host, own address": ([[ETH[1], *LO]], "10.0.0.1", "10.0.0.1"),
    "one host, own interface": ([[ETH[1], SIX[1], *LO]], "eth0", "10.0.0.1"),
    "one host, loopback by name": ([[ETH[1], *LO]], "lo", "127.0.0.1"),
    "one host, empty is unset": ([[ETH[1], *LO]], "", "127.0.0.1"),
    "two hosts": ([[*LO, ETH[1]], [*LO, ETH[2]]], None, "10.0.0.1 10.0.0.2"),
    "bridge": ([[*LO, DOCKER, ETH[1]], [DOCKER, *LO, ETH[2]]], None, "10.0.0.1 10.0.0.2"),
    "names differ": ([[ETH[1]], [ODD]], None, "10.0.0.1 10.0.0.2"),
    "IPv6 only": ([[*LO, LINK[1], SIX[1]], [*LO, LINK[2], SIX[2]]], None, "fd00::1 fd00::2"),
    "IPv4 first": ([[SIX[1], ETH[1]], [SIX[2], ETH[2]]], None, "10.0.0.1 10.0.0.2"),
    "faster": ([[ETH[1], FAST[1]], [ETH[2], FAST[2]]], None, "10.9.0.1 10.9.0.2"),
    "faster IPv6": ([[SIX_FAST[1], ETH[1]], [SIX_FAST[2], ETH[2]]], None, "fd09::1 fd09::2"),
    "slow on one host": ([[ETH[1], FAST[1]], [ETH[2], SLOW]], None, "10.0.0.1 10.0.0.2"),
    "down on one host": ([[ETH[1], FAST[1]], [ETH[2], DOWN]], None, "10.0.0.1 10.0.0.2"),
    "not on all": ([[FAST[1], ETH[1]], [FAST[2], ETH[2]], [ETH[3]]], None, "10.0.0.1 10.0.0.2 10.0.0.3"),
    "lowest subnet": ([TWICE[1], TWICE[2]], None, "10.0.9.1 10.0.9.2"),
    "lowest address": ([[on("a", "10.0.0.10/24"), ETH[8]], [ETH[2]]], None, "10.0.0.8 10.0.0.2"),
    "by name": ([[ETH[1], FAST[1]], [ETH[2], FAST[2]]], "eth0", "10.0.0.1 10.0.0.2"),
    "by names": ([[ETH[1], FAST[1]], [ODD, FAST[2]]], "eth0, en0", "10.0.0.1 10.0.0.2"),
    "by subnet": ([[ETH[1], FAST[1]], [ETH[2], FAST[2]]], "10.0.0.0/16", "10.0.0.1 10.0.0.2"),
    "by host in subnet": ([[ETH[1], FAST[1]], [ETH[2], FAST[2]]], "10.0.0.77/24", "10.0.0.1 10.0.0.2"),
    "by IPv6 subnet": ([[ETH[1], SIX[1]], [ETH[2], SIX[2]]], "fd00::/16", "fd00::1 fd00::2"),
    "by address": ([[ETH[1], FAST[1]], [ETH[2], FAST[2]]], "10.0.0.1,10.0.0.2", "10.0.0.1 10.0.0.2"),
    "by long IPv6 address": ([[SIX[1]], [SIX[2]]], "fd00:0::1,fd00:0:0::2", "fd00::1 fd00::2"),
    "by name, no subnet": ([[FAR[1], FAST[1]], [FAR[2], FAST[2]]], "eth0", "10.0.1.7 10.0.2.7"),
    "by name, one family": ([[FAR_SIX[1], FAR[1]], [FAR_SIX[2]]], "eth0", "fd00:1::7 fd00:2::7"),
}


@pytest.mark.parametrize(("hosts", "wanted", "addresses"), SELECTED.values(), ids=SELECTED.keys())
def test_select(hosts, wanted, addresses):
    assert " ".join(chosen.address for chosen in select(hosts, wanted)) == addresses


# interfaces of every host, HPCCOMM_INTERFACE, the last row of the table, whether it leaves out host 0
REFUSED = {
    "no network": ([[*LO, ETH[1]], LO[:1]], None, "host 1 lo 127.0.0.1/8 loopback", True),
    "nothing at all": ([[ETH[1]], []], None, "host 1 none", True),
    "down": ([[FAST[1]], [DOWN]], None, "host 1 ib0 10.9.0.2/24 down", True),
    "link-local only": ([[LINK[1]], [LINK[2]]], None, "host 1 eth0 fe80::2/64 link-local", False),
    "bridge": ([[DOCKER], [DOCKER]], None, "host 1 docker0 172.17.0.1/16 on other hosts too", False),
    "bridge by name": ([[DOCKER], [DOCKER]], "docker0", "docker0 172.17.0.1/16 on other hosts too", False),
    "no common subnet": ([[FAR[1]], [FAR[2]]], None, "host 1 eth0 10.0.2.7/24", False),
    "no common family": ([[FAR[1]], [FAR_SIX[2]]], "eth0", "host 1 eth0 fd00:2::7/64", False),
    "loopback by name": ([[*LO, ETH[1]], [ETH[2], *LO]], "lo", "host 1 lo ::1/128 loopback", False),
    "name on one host": ([[ETH[1]], [ODD]], "eth0", "host 1 en0 10.0.0.2/24 not asked for", True),
    "part of a name": ([[ETH[1]], [ETH[2]]], "eth", "host 1 eth0 10.0.0.2/24 not asked for", False),
    "address on one host": ([[ETH[1]], [ETH[2]]], "10.0.0.1", "host 1 eth0 10.0.0.2/24 not asked for", True),
    "subnet on no host": ([[ETH[1]], [ETH[2]]], "10.7.0.0/16", "host 1 eth0 10.0.0.2/24 not asked for", False),
    "one host, no loopback": ([[ETH[1]]], None, "host 0 eth0 10.0.0.1/24 not loopback", False),
    "one host, missing name": ([[*LO, ETH[1]]], "eth7", "host 0 eth0 10.0.0.1/24 not asked for", False),
}


@pytest.mark.parametrize(("hosts", "wanted", "last", "leaves_out_0"), REFUSED.values(), ids=REFUSED.keys())
def test_select_refuses_with_a_table(hosts, wanted, last, leaves_out_0):
    with pytest.raises(NetworkError) as caught:
        select(hosts, wanted)
    assert caught.value.everywhere
    assert caught.value.summary.endswith(last)
    assert ("host 0" not in caught.value.found) == leaves_out_0
    assert wanted is None or f"HPCCOMM_INTERFACE={wanted}" in caught.value.asked


def test_table_of_many_hosts_is_short():
    with pytest.raises(NetworkError) as caught:
        select([[DOCKER]] * 1000, None, names=[f"n{host}" for host in range(1000)])
    assert "n7" in caught.value.found
    assert "n8" not in caught.value.found
    assert "992 more hosts" in caught.value.found


@pytest.mark.parametrize("wanted", ["10.0.0.0/33", "eth0,,eth1", ",", "eth0/24"])
def test_wanted_that_does_not_parse(wanted):
    with pytest.raises(OptionError) as caught:
        select([[ETH[1]], [ETH[2]]], wanted)
    assert caught.value.everywhere
    assert "HPCCOMM_INTERFACE" in str(caught.value)
    assert repr(wanted) in str(caught.value)


BOTH, TWO = [[FAR[1], FAR_SIX[1]], [FAR_SIX[2]]], ["10.0.1.7 fd00:1::7", "fd00:2::7"]
MANY = [[FAR[1], TWICE[1][0], FAST[1]], [FAR[2], on("eth0", "10.8.0.2/24")]]
# interfaces of every host, HPCCOMM_INTERFACE, own addresses by the routing tables, address chosen on every host
ROUTED = {
    "one route": ([[FAR[1]], [FAR[2]]], None, ["10.0.1.7", "10.0.2.7"], "10.0.1.7 10.0.2.7"),
    "first route": (MANY, None, ["10.9.0.1 10.0.1.7", "10.0.2.7"], "10.9.0.1 10.0.2.7"),
    "IPv4 first": ([BOTH[0], [FAR_SIX[2], FAR[2]]], None, [TWO[0], "fd00:2::7 10.0.2.7"], "10.0.1.7 10.0.2.7"),
    "one family for all": (BOTH, None, TWO, "fd00:1::7 fd00:2::7"),
    "never loopback": ([[*LO, FAR[1]], [FAR[2]]], None, ["127.0.0.1", "10.0.2.7"], None),
    "never a bridge": ([[FAR[1], DOCKER], [DOCKER, FAR[2]]], None, ["172.17.0.1", "10.0.2.7"], None),
    "no route": ([[FAR[1]], [FAR[2]]], None, ["10.0.1.7", ""], None),
    "never another than asked for": (MANY, "eth0,a", ["10.9.0.1", "10.0.2.7"], None),
}


@pytest.mark.parametrize(("hosts", "wanted", "sources", "addresses"), ROUTED.values(), ids=ROUTED.keys())
def test_routes_decide_where_no_subnet_is_common(hosts, wanted, sources, addresses):
    try:
        chosen = select(hosts, wanted, routes=lambda left: [own.split() for own in sources])
    except NetworkError as error:
        assert "no route" in error.found
        assert addresses is None
    else:
        assert " ".join(interface.address for interface in chosen) == addresses


TEXTS = ["10.0.0.{}/24", "10.0.1.{}/24", "fd00::{}/64", "172.17.0.1/16", "127.0.0.1/8", "fe80::{}/64"]
cards = st.tuples(st.sampled_from(TEXTS), st.booleans(), st.sampled_from([0, 1000]))


@given(st.lists(st.lists(cards, max_size=6), min_size=2, max_size=5))
def test_a_selection_is_sound_whatever_the_hosts_have(drawn):
    hosts = [
        [on("x", text.format(host + 1), is_up=is_up, speed=speed) for text, is_up, speed in row]
        for host, row in enumerate(drawn)
    ]
    try:
        chosen = select(hosts, None)
    except NetworkError:
        usable = [{i.address[:6] for i in row if i.is_up and i.address[:4] in ("10.0", "fd00")} for row in hosts]
        assert not set.intersection(*usable)
        return
    assert all(interface in row for interface, row in zip(chosen, hosts, strict=True))
    assert len({interface.subnet for interface in chosen}) == 1
    assert len({interface.address for interface in chosen}) == len(hosts)
    assert not any(i.is_loopback or i.ip.is_link_local or not i.is_up for i in chosen)


class Seat:
    """One rank's Exchange; ranks are threads."""

    def __init__(self, rank, barrier, values):
        self.rank, self.size, self.barrier, self.values = rank, len(values), barrier, values

    def all_gather(self, value, call="gather"):
        self.values[self.rank] = pickle.dumps(value)
        self.barrier.wait(timeout=20)
        gathered = [pickle.loads(item) for item in self.values]
        self.barrier.wait(timeout=20)
        return gathered


def chosen_by_all(hosts, wishes, **injected):
    """Let every rank choose; `injected` functions get the rank first. Gives each rank's address or error."""

    def one(seat):
        bound = {name: partial(function, seat.rank) for name, function in injected.items()}
        try:
            return choose(seat, hosts, wishes[seat.rank], **bound).address
        except HpccommError as error:
            return error

    barrier, values = threading.Barrier(len(hosts)), [None] * len(hosts)
    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(one, [Seat(rank, barrier, values) for rank in range(len(hosts))]))


@pytest.mark.parametrize(("wanted", "net"), [(None, "10.9.0"), ("eth0", "10.0.0")])
def test_choose_asks_each_host_once_and_gives_its_ranks_one_address(wanted, net):
    hosts, asked = (5, 5, 3, 4, 3), []

    def read(rank):
        asked.append(rank)
        return (*LO, DOCKER, ETH[hosts[rank]], FAST[hosts[rank]])

    assert chosen_by_all(hosts, [wanted] * 5, read=read) == [f"{net}.{host}" for host in hosts]
    assert sorted(asked) == [0, 2, 3]


def test_choose_on_one_host_is_loopback():
    assert chosen_by_all((0, 0), [None, ""]) == ["127.0.0.1"] * 2


def test_choose_asks_the_routing_tables_of_routed_hosts():
    hosts, asked = (0, 1, 1, 2), []

    def read(rank):
        return (*LO, FAR[hosts[rank]], FAR_SIX[hosts[rank]])

    def route(rank, target):
        asked.append((hosts[rank], target))
        return f"10.0.{hosts[rank]}.7" if "." in target else None

    assert chosen_by_all(hosts, [None] * 4, read=read, route=route) == [f"10.0.{host}.7" for host in hosts]
    towards = {0: [FAR[1], FAR_SIX[1]], 1: [FAR[0], FAR_SIX[0]], 2: [FAR[0], FAR_SIX[0]]}
    assert sorted(asked) == sorted((host, other.address) for host, others in towards.items() for other in others)


BROKEN = [
    (["eth0", None], [ETH[1], ETH[2]], OptionError, ["HPCCOMM_INTERFACE", "eth0 on rank 0", "unset on rank 1"]),
    (["eth0"] * 2, [ETH[1], FAST[2]], NetworkError, ["HPCCOMM_INTERFACE=eth0", socket.gethostname(), "ib0"]),
    ([None] * 2, [ETH[1], OSError("no netlink")], HpccommError, ["rank 1", "no netlink"]),
]


@pytest.mark.parametrize(("wishes", "cards", "kind", "words"), BROKEN)
def test_choose_fails_alike_on_all_ranks(wishes, cards, kind, words):
    def read(rank):
        if isinstance(cards[rank], Exception):
            raise cards[rank]
        return (*LO, cards[rank])

    one, two = chosen_by_all((0, 1), wishes, read=read)
    assert isinstance(one, kind)
    assert (str(one), one.everywhere) == (str(two), True) == (str(one), two.everywhere)
    assert [word for word in words if word not in str(one)] == []


def test_interfaces_of_this_host():
    found = interfaces()
    (loopback,) = [interface for interface in found if interface.address == "127.0.0.1"]
    assert loopback == Interface(loopback.name, "127.0.0.1", 8, True, True, loopback.speed)
    assert loopback.subnet == ipaddress.ip_network("127.0.0.0/8")
    for interface in found:
        assert interface.is_loopback == interface.ip.is_loopback
        assert interface.speed >= 0
        assert interface.ip in interface.subnet


def test_source_address():
    assert source_address("127.0.0.1") == "127.0.0.1"
    assert source_address("::1") in ("::1", None)
    assert source_address("255.255.255.255") is None


IPV6 = pytest.param("::1", marks=pytest.mark.skipif(source_address("::1") is None, reason="no IPv6"))


@pytest.mark.parametrize("address", ["127.0.0.1", IPV6])
def test_listen_on_one_address_only(address):
    with listen(address) as listener:
        bound, port = listener.getsockname()[:2]
        assert bound == address
        with socket.create_connection((address, port), timeout=5):
            listener.accept()[0].close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


@pytest.mark.parametrize("address", ["127.0.0.1", IPV6])
def test_busy_port(address):
    with listen(address) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(NetworkError, match=f"port {port}") as caught:
            listen(address, port)
    assert "in use" in caught.value.found
    assert "another port" in caught.value.remedy


@pytest.mark.parametrize("place", [("192.0.2.77", 0), ("localhost", 0), ("127.0.0.1", 70_000), ("127.0.0.1", -1)])
def test_listen_refuses_what_is_no_address_or_port_of_this_host(place):
    with pytest.raises(NetworkError, match=place[0]):
        listen(*place)
