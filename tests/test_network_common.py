"""Which networks join all hosts."""

from __future__ import annotations

from hpccomm.network import Interface, common, select


def test_subnets_in_common_begin_with_the_one_that_is_taken() -> None:
    def host(number: int) -> list[Interface]:
        cards = (("eth0", "10.0.0", 1000), ("eth1", "10.1.0", 4000 // number), ("eth2", "10.2.0", 0))
        found = [Interface(name, f"{net}.{number}", 24, True, False, speed) for name, net, speed in cards]
        return [
            Interface("lo", "127.0.0.1", 8, True, True, 0),
            Interface("br", "172.17.0.1", 16, True, False, 0),
            *found,
        ]

    hosts = [host(number) for number in (1, 2)]
    assert [*common(hosts).items()] == [("10.1.0.0/24", 2000), ("10.0.0.0/24", 1000), ("10.2.0.0/24", 0)]
    assert common(hosts, "eth2") == {"10.2.0.0/24": 0}
    assert next(iter(common(hosts))) == str(select(hosts, None)[0].subnet)
    assert common([hosts[0], [hosts[1][0]]]) == {}
