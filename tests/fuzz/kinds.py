"""The table of collectives that are drawn from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A collective.

    Attributes:
        name: Its name.
        reduces: Whether it takes an operator.
        refuses_overlap: Whether all ranks write tensors of one size, so that all refuse overlapping ones.
        of_any_rank: Whether it receives from any rank.
    """

    name: str
    reduces: bool = False
    refuses_overlap: bool = False
    of_any_rank: bool = False


_TABLE = (
    Kind("all_reduce", reduces=True, refuses_overlap=True),
    Kind("all_reduce_coalesced", reduces=True, refuses_overlap=True),
    Kind("all_reduce_in_manager", reduces=True, refuses_overlap=True),
    Kind("reduce", reduces=True, refuses_overlap=True),
    Kind("reduce_scatter", reduces=True, refuses_overlap=True),
    Kind("reduce_scatter_uneven", reduces=True),
    Kind("reduce_scatter_tensor", reduces=True, refuses_overlap=True),
    Kind("reduce_scatter_in_place", reduces=True),
    Kind("broadcast", refuses_overlap=True),
    Kind("all_gather", refuses_overlap=True),
    Kind("all_gather_uneven", refuses_overlap=True),
    Kind("all_gather_tensor", refuses_overlap=True),
    Kind("all_gather_in_place"),
    Kind("all_gather_in_manager", refuses_overlap=True),
    Kind("gather"),
    Kind("scatter", refuses_overlap=True),
    Kind("all_to_all"),
    Kind("all_to_all_single", refuses_overlap=True),
    Kind("all_to_all_uneven"),
    Kind("all_gather_object"),
    Kind("broadcast_object_list"),
    Kind("gather_object"),
    Kind("scatter_object_list"),
    Kind("send_recv"),
    Kind("isend_irecv"),
    Kind("batch_isend_irecv"),
    Kind("recv_any", of_any_rank=True),
    Kind("barrier"),
    Kind("chain"),
)

COLLECTIVES = {kind.name: kind for kind in _TABLE}
