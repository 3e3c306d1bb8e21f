"""Schedules: what one rank sends, receives and adds, step by step, and the proof that all ranks' steps fit together.

A schedule is a pure generator ``(rank, size, count, …) -> Iterator[Step]`` of the steps of one rank. It knows no
tensor, library or clock; whoever carries it out keeps to these rules, and `verify` proves it under them:

* **Order.** A rank takes its steps one after the other. A step posts its send and its receive together and ends when
  what it received is stored (``reduce=False``) or added (``reduce=True``). A step that only sends ends at once.
* **Sends** read what the buffer holds when they are posted, and may finish any time later. Before an interval is
  overwritten or added to, all pending sends that overlap it must have finished. `verify` assumes the least helpful
  carrier: a send finishes only when its receive is posted; a receive that stores is posted only after that wait, one
  that adds lands in memory of its own first. So a step must not store where it sends from itself.
* **Matching.** Messages from one rank to another are received in the order in which they are posted; the two
  intervals have the same length, though not always the same place.
* **Empty intervals** are no messages: nothing is sent or received there, as both ends can see.
* **Local steps.** A step with ``dest == source == rank`` copies or adds within the rank.
* **Buffers.** Normally sends and receives share one buffer, in which blocks lie in rank order. A schedule made for a
  *separate input* sends from the input, which never changes, and receives into an output that starts undefined.
"""

from hpccomm.schedule import contracts
from hpccomm.schedule.contracts import Contract
from hpccomm.schedule.step import Interval, Step, backwards, blocks, chunk, chunks, embed, shares
from hpccomm.schedule.verify import verify

__all__ = [
    "Contract",
    "Interval",
    "Step",
    "backwards",
    "blocks",
    "chunk",
    "chunks",
    "contracts",
    "embed",
    "shares",
    "verify",
]
