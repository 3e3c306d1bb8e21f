"""Combinator `failover(a, b, …)`: where a backend fails, all ranks go on with the next one, and redo what failed.

An operation works on a copy. When it has ended, the ranks agree in a small all-reduce, apart from the backends, that it
went well everywhere, and only then is the result stored; where it did not, the next backend does it again. They also
compare checksums: of results that must be equal on all ranks, and of blocks with what was sent.

Operations are polled, `mpi4py` standing for ``mpi4py(deadline=strict)``, and given up after a share of the deadline of
their call. Sends and receives have no such agreement, and keep to the backend that stood first.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

import torch

from hpccomm.backends.attempt import Attempt
from hpccomm.backends.base import Backend, LibraryCall, Operation, offsets
from hpccomm.backends.c10d import Op
from hpccomm.backends.context import Context
from hpccomm.backends.device import device_of
from hpccomm.backends.jury import Jury, checksum
from hpccomm.backends.repeatable import Blocks, Repeatable
from hpccomm.backends.standing import build_apart, discard
from hpccomm.backends.strict import polled
from hpccomm.errors import BackendError, OptionError
from hpccomm.expression import Expression
from hpccomm.watch.patrol import say


class FailoverBackend(Backend):
    """Several backends, of which one does the work.

    Args:
        context: The group.
        backends: The backends, the best first.
        verify: Whether results are compared.
        back_after: Seconds after which the first backend is made anew and tried again; 0 for never.
    """

    def __init__(self, context: Context, *backends: Expression, verify: bool = True, back_after: float = 0.0) -> None:
        super().__init__(context)
        if not backends or back_after < 0:
            raise OptionError(
                f"build backend failover({', '.join(map(str, backends))}, back_after={back_after:g})",
                found="a negative time" if backends else "no backend",
                remedy="give the backends, the best first, and seconds from 0",
                everywhere=True,
            )
        self._asked, self._verifies, self._back_after = backends, verify, back_after
        self._calls = self._makings = 0
        self._goes_back, self._fell_at = False, time.monotonic()
        self._jury = Jury(context.child("jury"))
        self._why = ""
        self._made = [self._make(number, context.timeout_s) for number in range(len(backends))]
        self._retired: list[Backend] = []
        self._place = -1
        self._go_on_with_next(self._why)
        self._messenger = self._standing
        standing = [backend for backend in self._made if backend is not None]
        self.support = standing[0].support
        for backend in standing[1:]:
            self.support = self.support.joined(backend.support)
        self.max_count = min(backend.max_count for backend in standing)

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Reduce over all ranks; all must get the same."""
        return self._carried(Repeatable(lambda over, out: over.all_reduce(out, op), buffer, reads=True, same=True))

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Overwrite with the root's; all must get the same."""
        stands = self.rank == root
        work = Repeatable(lambda over, out: over.broadcast(out, root), buffer, reads=stands, same=True, stands=stands)
        return self._carried(work)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Collect all ranks' blocks; all must get the same."""
        return self._carried(Repeatable(lambda over, out: over.all_gather(out, source, counts), output, same=True))

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Reduce over all ranks and keep a block; where results are compared, by an all-reduce of a copy."""
        if not self._verifies:
            return self._carried(Repeatable(lambda over, out: over.reduce_scatter(out, source, op, counts), output))
        return self._reduce_scatter_compared(output, source, op, counts)

    def _reduce_scatter_compared(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None
    ) -> Operation:
        whole, starts = source.reshape(-1).clone(), offsets(counts or [output.numel()] * self.size)
        yield from self.all_reduce(whole, op)
        output.view(-1).copy_(whole[starts[self.rank] : starts[self.rank + 1]])

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Reduce to the root; where results are compared, to all ranks."""
        if self._verifies:
            return self.all_reduce(buffer, op)
        return self._carried(Repeatable(lambda over, out: over.reduce(out, op, root), buffer, reads=True))

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Collect all ranks' blocks on the root."""
        is_root = output is not None
        return self._carried(
            Repeatable(
                lambda over, out: over.gather(out if is_root else None, source, root),
                source.new_empty(0) if output is None else output,
                sent=self._only(root, source),
                received=lambda out: list(out.view(self.size, -1)) if is_root else self._only(root, None),
            )
        )

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Give every rank its block of the root's."""
        return self._carried(
            Repeatable(
                lambda over, out: over.scatter(out, source, root),
                output,
                sent=self._only(root, None) if source is None else list(source.view(self.size, -1)),
                received=lambda out: self._only(root, out),
            )
        )

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Exchange a block with each rank."""
        return self._carried(
            Repeatable(
                lambda over, out: over.all_to_all(out, source, sent, received),
                output,
                sent=torch.split(source.view(-1), list(sent)),
                received=lambda out: torch.split(out.view(-1), list(received)),
            )
        )

    def barrier(self) -> Operation:
        """Wait for all ranks."""
        return self._carried(Repeatable(lambda over, out: over.barrier(), torch.empty(0, device="cpu")))

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Send over the backend that stood first."""
        return self._messenger.send(buffer, dest, tag)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Receive over the backend that stood first."""
        return self._messenger.recv(buffer, source, tag)

    def close(self) -> None:
        """Close all backends."""
        for backend in (*self._made, *self._retired):
            if backend is not None:
                backend.context.health.broken |= self.context.health.broken
                backend.close()
        self._jury.close()
        super().close()

    @property
    def _patience_s(self) -> float:
        """Seconds that an attempt has, by the deadline of the operation under way as it is now."""
        given_s = self.context.beside.timeout_s if self.context.beside else None
        return (given_s or self.context.timeout_s) / (len(self._asked) + 1)

    @property
    def _standing(self) -> Backend:
        backend = self._made[self._place]
        assert backend is not None
        return backend

    def _only(self, rank: int, block: torch.Tensor | None) -> Blocks:
        return [block if other == rank else None for other in range(self.size)]

    def _carried(self, work: Repeatable) -> Operation:
        """Try an operation until all ranks agree that it went well."""
        if self._goes_back:
            yield from self._return_to_first()
        while True:
            self._calls += 1
            yield from self._jury.arrive()  # a rank that comes late is no fault of the backend
            out = work.result.clone() if work.reads else torch.empty_like(work.result)
            attempt = Attempt(self._calls, self.context.beside, lambda: self._patience_s)
            failure = yield from attempt.step(self._begun(work, out))
            failure = yield from self._judged(work, out, failure)
            if not failure:
                work.store(out)
                return
            self._go_on_with_next(failure)

    def _begun(self, work: Repeatable, out: torch.Tensor) -> Operation:
        yield from work.begin(self._standing, out)  # here, as a backend may raise before it yields
        device = device_of(self.context.device)
        if device is not None and device.owns(out):  # what is queued has yet to come out well
            event = device.record(device.current())
            while not event.query():
                yield "the GPU"

    def _judged(self, work: Repeatable, out: torch.Tensor, failure: str) -> Generator[str | LibraryCall, None, str]:
        """Agree with all ranks on what came out, and give what went wrong on any of them."""
        compares = self._verifies and not failure
        total = checksum(out) if compares and work.same else 0
        verdict = yield from self._jury.agree(failure, total, asks=self._would_go_back)
        self._goes_back = verdict.asked
        if verdict.differs and out.is_floating_point():
            verdict = yield from self._jury.agree("", checksum(out.masked_fill(out.isnan(), torch.nan)))
        if verdict.failure or not (self._verifies and work.sent):
            return verdict.failure
        differs = yield from self._jury.compare(work.sent, work.received(out))
        return (yield from self._jury.agree(differs)).failure

    @property
    def _would_go_back(self) -> bool:
        waited = time.monotonic() - self._fell_at
        return self._back_after > 0 and self._place > 0 and waited > self._back_after

    def _return_to_first(self) -> Operation:
        """Make the first backend anew, once all ranks have come, and use it if that succeeds on all of them."""
        yield from self._jury.agree("")
        made: list[Backend | None] = []
        yield LibraryCall(lambda _: made.append(self._make(0, self._patience_s)), "the first backend to be made anew")
        self._goes_back, self._fell_at = False, time.monotonic()
        if (first := made[0]) is not None and self._is_served_by(first):
            before, self._made[0], self._place = self._asked[self._place], first, 0
            self._note(f"from {before} back to {self._asked[0]} after {self._back_after:g} s")
        elif first is not None:
            first.close()
            discard(self.context, first.context)

    def _is_served_by(self, backend: Backend) -> bool:
        """Tell whether a backend does all that was promised when it may not have stood."""
        reduces = backend.support.reductions
        serves = all(ops <= reduces.get(dtype, frozenset()) for dtype, ops in self.support.reductions.items())
        return serves and backend.max_count >= self.max_count

    def _make(self, number: int, timeout_s: float) -> Backend | None:
        """Build a backend on channels of its own; collective. None where that failed, as all ranks know alike."""
        self._makings += 1
        name = f"{number} made {self._makings}"
        made, why = build_apart(polled(self._asked[number]), self.context, name, timeout_s)
        self._why = why or self._why
        return made

    def _go_on_with_next(self, why: str) -> None:
        """Use the next backend that stands, and say so; raise on all ranks where none is left."""
        former, self._fell_at = self._place, time.monotonic()
        if former >= 0:  # it may hold messages of what failed, which nothing later must receive
            self._retired.append(self._standing)
            self._made[former] = None
        left = [number for number in range(former + 1, len(self._made)) if self._made[number] is not None]
        if not left:
            raise BackendError(
                f"{self.expression or 'failover(…)'}, call {self._calls}",
                found=f"no backend is left; the last failed: {why}",
                remedy="look for what failed first; World.renew makes all of them anew",
                everywhere=True,
            )
        self._place = left[0]
        if self._place != 0:
            self.context.health.broken = True
            self._note(f"from {self._asked[max(former, 0)]} to {self._asked[self._place]} at call {self._calls}: {why}")

    def _note(self, text: str) -> None:
        self.fell_back = [*self.fell_back, text]
        if (beside := self.context.beside) is not None:
            beside.note(f"failover {text}")
        if self.rank == 0 and self.size > 1:
            say(f"failover {text}")
