"""NCCL's and Gloo's settings: what is refused, and what reaches the environment."""

from __future__ import annotations

from typing import Any

import pytest

from hpccomm.backends.c10d import HashStore
from hpccomm.bootstrap.libraries import agreed_settings
from hpccomm.errors import OptionError
from hpccomm.exchange import StoreExchange
from hpccomm.transport_options import GlooOptions, Host, NcclOptions

HOST = Host("n1", ("lo", "eth0", "eth1", "docker0"), ("mlx5_0", "mlx5_1"))


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        ({}, {}),
        ({"ib_disable": False}, {"NCCL_IB_DISABLE": "0"}),
        ({"buffsize": 1 << 20, "nthreads": 96}, {"NCCL_BUFFSIZE": "1048576", "NCCL_NTHREADS": "96"}),
        ({"algo": "tree"}, {"NCCL_ALGO": "allreduce:Tree"}),
        ({"algo": "pat,tree"}, {"NCCL_ALGO": "allgather:PAT;reducescatter:PAT;allreduce:Tree"}),
        ({"algo": "allreduce:nvls,ring"}, {"NCCL_ALGO": "allreduce:NVLS,Ring"}),
        ({"algo": "^ring"}, {"NCCL_ALGO": "allgather:^Ring;reducescatter:^Ring;allreduce:^Ring"}),
        ({"proto": "allreduce:^ll128"}, {"NCCL_PROTO": "allreduce:^LL128"}),
        ({"max_nchannels": 64, "debug": "WARN"}, {"NCCL_MAX_NCHANNELS": "64", "NCCL_DEBUG": "WARN"}),
    ],
)
def test_settings_become_variables(given: dict[str, Any], environment: dict[str, str]) -> None:
    assert NcclOptions(**given).environment == environment


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"buffsize": 3 << 20}, "a power of two from 64 KiB to 1 GiB"),
        ({"buffsize": "1M"}, "of type int"),
        ({"nthreads": 100}, "a multiple of 32 from 64 to 512"),
        ({"max_nchannels": 0}, "a number from 1 to 64"),
        ({"ib_disable": 1}, "of type bool"),
        ({"algo": "rings"}, "names out of Ring, Tree"),
        ({"algo": "broadcast:tree"}, "for broadcast some of Ring"),
        ({"algo": "broadcast:^ring"}, "for broadcast some of Ring"),
        ({"algo": "allreduce:tree;ring"}, "a function before each entry but the first"),
        ({"algo": "all_reduce:tree"}, "one of the functions Broadcast"),
        ({"proto": "Simple,"}, "names out of LL, LL128, Simple"),
        ({"debug": "info"}, "one of VERSION, WARN, INFO, TRACE"),
        ({"socket_ifname": "^"}, "a name"),
    ],
)
def test_what_nccl_would_replace_or_refuse_is_refused(given: dict[str, Any], wanted: str) -> None:
    with pytest.raises(OptionError) as found:
        NcclOptions(**given)
    assert wanted in found.value.found
    (name,) = given
    assert NcclOptions.advice()[name] in found.value.remedy


@pytest.mark.parametrize(
    ("name", "fits", "fails"),
    [
        ("socket_ifname", ("eth", "=eth0", "=eth0,wlan0", "^docker", "^=lo"), ("wlan", "=eth", "^eth,lo,docker")),
        ("ib_hca", ("mlx5", "=mlx5_0:1", "^mlx5_0"), ("=mlx5", "mlx4", "^mlx5")),
    ],
)
def test_names_are_matched_as_nccl_does(name: str, fits: tuple[str, ...], fails: tuple[str, ...]) -> None:
    for text in fits:
        NcclOptions(**{name: text}).check_host(HOST)
    for text in fails:
        with pytest.raises(OptionError, match="of n1, which has"):
            NcclOptions(**{name: text}).check_host(HOST)


def test_gloo_takes_exact_names() -> None:
    GlooOptions(socket_ifname="eth0,eth1").check_host(HOST)
    with pytest.raises(OptionError, match="interfaces of n1, which has docker0, eth0, eth1, lo"):
        GlooOptions(socket_ifname="eth").check_host(HOST)


def test_settings_are_checked_on_this_host_and_given_as_variables() -> None:
    exchange = StoreExchange(HashStore(), 0, 1, "test")
    given = [NcclOptions(socket_ifname="=lo"), GlooOptions(socket_ifname="lo")]
    assert agreed_settings(exchange, given) == {"NCCL_SOCKET_IFNAME": "=lo", "GLOO_SOCKET_IFNAME": "lo"}
    with pytest.raises(OptionError) as found:
        agreed_settings(exchange, [NcclOptions(socket_ifname="=eth-none")])
    assert found.value.everywhere
