"""Who has sent a message to this rank: asked of the senders, for backends whose receives must name their source.

Every rank counts the messages that it posts by peer and tag. A source that has posted more sends to this rank than
this rank has posted receives from it has a message for it, and messages of one source and tag arrive in order.
"""

from __future__ import annotations

import time

from hpccomm.watch.flight import GroupLog
from hpccomm.watch.missing import Inquiry

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.5e-3, 20e-3


def find_sender(inquiry: Inquiry, log: GroupLog, tag: int, timeout_s: float) -> int | None:
    """Wait until a rank has sent a message that no receive was posted for, and claim that message.

    Args:
        inquiry: Asks the other ranks.
        log: The group's record.
        tag: The message's tag.
        timeout_s: How long to wait, in seconds.

    Returns:
        The sender's rank in the group, or None where the group has died meanwhile.

    Raises:
        TimeoutError: Nobody has sent in time.
    """
    key, pause_s, end = log.key, _SHORTEST_PAUSE_S, time.monotonic() + timeout_s
    while log.why_dead is None and log.key == key:
        sender = log.claim(_sent(inquiry, log, tag), tag, key)
        if sender is not None:
            return sender
        if time.monotonic() > end:
            raise TimeoutError("nobody has sent in time")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    return None


def _sent(inquiry: Inquiry, log: GroupLog, tag: int) -> dict[int, int]:
    """Ask all ranks how many messages with a tag they have posted to this one."""
    others = {rank: peer for peer, rank in enumerate(log.ranks) if peer != log.rank}
    question = {"group": log.key, "sent_to": log.rank, "tag": tag}
    answers = inquiry.channel.ask(question, others, inquiry.serve)
    return {others[rank]: answer["sent"] for rank, answer in answers.items() if "sent" in answer}
