"""Which GPU a rank takes, for every way in which launchers and users show ranks devices."""

from __future__ import annotations

import pytest

from hpccomm.topology.binding import bind, device_names, shared_devices

ALL = ("GPU-a", "GPU-b", "GPU-c", "GPU-d")


@pytest.mark.parametrize(
    ("variable", "uuids", "names"),
    [
        (None, ALL, ALL),
        ("0,1,2,3", ALL, ALL),
        ("3,1", ("GPU-d", "GPU-b"), ("GPU-d", "GPU-b")),
        ("GPU-c", ("GPU-c",), ("GPU-c",)),
        ("MIG-7f/1/0", ("GPU-a",), ("MIG-7f/1/0",)),
        ("MIG-7f,MIG-8e", ("GPU-a",), ("MIG-7f",)),
        ("", (), ()),
        ("-1", (), ()),
    ],
)
def test_names_are_uuids_but_for_instances(
    variable: str | None, uuids: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert device_names(variable, uuids) == names


@pytest.mark.parametrize(
    ("visible", "indices", "devices"),
    [
        pytest.param([ALL] * 4, [0, 1, 2, 3], "abcd", id="all see all"),
        pytest.param([ALL] * 2, [0, 1], "ab", id="more devices than ranks"),
        pytest.param([(name,) for name in ALL], [0, 0, 0, 0], "abcd", id="Slurm binds one to each task"),
        pytest.param([(name,) for name in reversed(ALL)], [0, 0, 0, 0], "dcba", id="bound in another order"),
        pytest.param([ALL[:2], ALL[2:]], [0, 0], "ac", id="two for each task"),
        pytest.param([ALL[:2], ALL[:2], ALL[2:], ALL[2:]], [0, 1, 0, 1], "abcd", id="two sockets"),
        pytest.param([tuple(reversed(ALL))] * 4, [0, 1, 2, 3], "dcba", id="CUDA_VISIBLE_DEVICES=3,2,1,0"),
        pytest.param([ALL, ALL[::-1]], [0, 0], "ad", id="each in its own order"),
        pytest.param([ALL[:2], ALL[1:3]], [0, 0], "ab", id="overlapping"),
        pytest.param([("MIG-1",), ("MIG-2",)], [0, 0], "12", id="instances"),
        pytest.param([ALL[:1]] * 3, [0, 0, 0], "aaa", id="one for all"),
        pytest.param([ALL[:2]] * 4, [0, 1, 0, 1], "abab", id="shared evenly"),
        pytest.param([(), ALL[:1], ()], [None, 0, None], "-a-", id="some see none"),
    ],
)
def test_each_rank_takes_the_least_taken_device(
    visible: list[tuple[str, ...]], indices: list[int | None], devices: str
) -> None:
    found = [bind(visible, rank) for rank in range(len(visible))]
    assert [None if one is None else one.index for one in found] == indices
    assert [None if one is None else one.name[-1] for one in found] == [None if d == "-" else d for d in devices]
    for rank, one in enumerate(found):
        if one is not None:
            assert one.sharers == tuple(other for other in range(len(found)) if devices[other] == devices[rank])
            assert bool(one.note) == (devices.count(devices[rank]) > 1)


def test_ranks_that_are_left_keep_what_they_have() -> None:
    found = [bind([ALL] * 3, rank, ["GPU-b", "GPU-d", "GPU-b"]) for rank in range(3)]
    assert [(one.index, one.name, one.sharers) for one in found if one is not None] == [
        (1, "GPU-b", (0, 2)),
        (3, "GPU-d", (1,)),
        (1, "GPU-b", (0, 2)),
    ]


@pytest.mark.parametrize(
    ("hosts", "names", "said"),
    [
        ((0, 0, 1, 1), "abab", ""),
        ((0, 0, 1), "aaa", "ranks 0-1 on a"),
        ((0, 1, 0, 1), "abac", "ranks 0,2 on a"),
        ((0, 0, 0, 0), "abba", "ranks 0,3 on a, ranks 1-2 on b"),
    ],
)
def test_devices_that_ranks_of_a_host_share_are_named(hosts: tuple[int, ...], names: str, said: str) -> None:
    assert shared_devices(hosts, names) == said
