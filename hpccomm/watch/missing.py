"""Who is missing from an operation, and what became of them, in words.

A waiting rank asks the others over the side channel; for those that do not answer it looks at their processes, where
they share its host. It knows no operation but by its number.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpccomm.claim import claim
from hpccomm.liveness import Process
from hpccomm.watch.channel import REFUSED, Answer, Channel
from hpccomm.watch.coroner import ALL, tell
from hpccomm.watch.flight import P2P, Entry, Flight, GroupLog
from hpccomm.watch.losses import Losses


@dataclass(frozen=True)
class Place:
    """Where a rank lives: its host's name and its process."""

    host: str
    process: Process


@dataclass(frozen=True)
class Finding:
    """What a waiting rank found out.

    Attributes:
        missing: What is the matter with each rank (of the job) that holds the operation up.
        waiting: The other ranks (of the job) that wait in the same operation, this one among them.
    """

    missing: Mapping[int, str]
    waiting: Sequence[int]

    def __str__(self) -> str:
        if not self.missing:
            return "all ranks are in it, so that the library or the network holds it up"
        shown = [f"rank {rank} {words}" for rank, words in list(self.missing.items())[:8]]
        more = [f"and {len(self.missing) - 8} more ranks"] if len(self.missing) > 8 else []
        return "; ".join(shown + more)


class Inquiry:
    """Asks and answers for this rank.

    Args:
        channel: The side channel.
        flight: This rank's record.
        places: Where every rank lives.
        rank: This rank.

    Attributes:
        channel: The side channel.
        flight: This rank's record.
        places: Where every rank lives.
        rank: This rank.
        names_the_dead: Whether ranks name those that ended without a word; a coroner may do so instead.
        leaving: The ranks that have said that they end.
        losses: The ranks that are lost, where the job is to go on without them; else None.
    """

    def __init__(self, channel: Channel, flight: Flight, places: Sequence[Place], rank: int) -> None:
        self.channel, self.flight, self.places, self.rank = channel, flight, places, rank
        self.leaving: set[int] = set()
        self._ending_all: set[int] = set()
        self.names_the_dead = True
        self.losses: Losses | None = None
        self._claims: list[socket.socket] = []

    def find(self, log: GroupLog, entry: Entry) -> Finding:
        """Find out who holds an operation up; takes a fraction of a second where ranks do not answer."""
        self.serve()  # a rank that was stopped may find that the others have ended because of it
        others = [rank for rank in log.ranks if rank != self.rank and rank not in self._ending_all]
        if entry.collective in P2P and entry.peer >= 0:
            others = [log.ranks[entry.peer]]
        missing = {rank: words for rank in others if (words := self._seen(rank))}
        answers = self.channel.ask({"group": log.key}, [r for r in others if r not in missing], self.serve)
        waiting = [self.rank]
        for rank in others:
            words = missing.get(rank) or self._judge(rank, answers.get(rank), entry)
            if words:
                missing[rank] = words
            elif entry.collective not in P2P and answers[rank].get("current") == entry.sequence:
                waiting.append(rank)
        return Finding(dict(sorted(missing.items())), sorted(waiting))

    def answer(self, question: Answer) -> Answer:
        """Say how far this rank is in a group."""
        log = next((log for log in list(self.flight.logs.values()) if log.key == question.get("group")), None)
        if log is None:
            return {"unknown": True}
        if "sent_to" in question:
            return {"sent": log.messages["send", question["sent_to"], question["tag"]]}
        current, last = log.current, next(reversed(log.last()), None)
        told: Answer = {"started": log.started, "dead": None if log.heard else log.why_dead, "overdue": log.overdue}
        if current is not None:
            told |= {"current": current.sequence, "doing": str(current)}
        elif last is not None and last.ended_s is not None:
            told["did"] = f"{last}, which ended {time.monotonic() - last.ended_s:.0f} s ago"
        return told

    def serve(self) -> None:
        """Take what has arrived over the side channel."""
        self.channel.serve(self.answer, self.hear)

    def hear(self, news: Answer) -> None:
        """Take another rank's word that a group is dead, or that the rank itself ends."""
        if "lost" in news and self.losses is not None:
            self.losses.learn(news["lost"])
        if "leaves" in news:
            self.leaving.add(int(news["leaves"]))
            if news.get("for_all"):
                self._ending_all.add(int(news["leaves"]))
                tell(self.channel.local_name, ALL)  # this host's coroner, whom a rank of another host does not reach
        for log in list(self.flight.logs.values()):
            if log.key == news.get("group") and "gave_up" in news:
                log.given_up = max(log.given_up, int(news["gave_up"]))
            elif log.key == news.get("group") and log.why_dead is None:
                log.heard, log.overdue, log.died_at = True, bool(news.get("overdue")), int(news.get("died_at", 0))
                log.why_dead = str(news["why"])

    def vanished(self, ranks: Iterable[int]) -> str:
        """Take in that processes of this host have ended, and name those that ended without a word.

        The groups that they belong to take no operation any more. Of the ranks that see it, the first one names them:
        some launchers kill the others within milliseconds.
        """
        self.serve()
        gone = [rank for rank in ranks if rank not in self.leaving]
        named = [rank for rank in gone if self.names_the_dead and self._is_first_to_name(rank)]
        if self.losses is not None:
            self.losses.learn(gone)
        for log in list(self.flight.logs.values()):
            lost = [rank for rank in gone if rank in log.ranks]
            if lost and log.why_dead is None:
                log.why_dead = f"{self.named(lost)} ended"
        return f"{self.named(named)} ended without a word" if named else ""

    def _is_first_to_name(self, rank: int) -> bool:
        """Claim a name that the kernel grants once on a host, for as long as this process lives."""
        mark = claim(f"{self.channel.local_name}/{rank}")
        if mark is not None:
            self._claims.append(mark)
        return mark is not None

    def named(self, ranks: Iterable[int]) -> str:
        """Name ranks with their hosts and processes."""
        places = [(rank, self.places[rank]) for rank in ranks]
        return ", ".join(f"rank {rank} on {place.host} (process {place.process.pid})" for rank, place in places)

    def _seen(self, rank: int) -> str:
        """Say what is the matter with a process that this one can see; nothing where it runs."""
        where, process = self.places[rank], self.places[rank].process
        words = {"running": "", "stopped": "is stopped", "dead": "has ended"}[process.state]
        return words and f"on {where.host} {words} (process {process.pid})"

    def _judge(self, rank: int, answer: Answer | None, entry: Entry) -> str:
        """Say from its answer what is the matter with a rank; nothing where it does its part."""
        where, process = self.places[rank], self.places[rank].process
        if answer is REFUSED:
            return f"on {where.host} has ended (process {process.pid})"
        if answer is None and process.is_visible:  # `_seen` has found it running
            return f"on {where.host} runs, but is too busy to answer"
        if answer is None:
            return f"on {where.host} does not answer: it is stopped, or its host cannot be reached"
        if answer.get("unknown"):
            return f"on {where.host} does not have this group: it has closed it, or not made it yet"
        waited_too = answer.get("overdue") and answer["started"] >= entry.sequence
        if answer.get("dead") and not waited_too:
            return f"on {where.host} has given the group up: {answer['dead']}"
        if entry.collective in P2P or answer["started"] < entry.sequence:
            return f"on {where.host} has not come: {_last(answer)}"
        return ""


def _last(answer: Answer) -> str:
    if "doing" in answer:
        return f"it is in {answer['doing']}"
    return f"its last was {answer['did']}" if "did" in answer else "it has called nothing yet"
