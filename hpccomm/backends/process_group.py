"""The face that torch sees: a ProcessGroup, with a torch Backend inside it where torch offers one.

From torch 2.14 on, Python callers reach the ProcessGroup by the short way and C++ callers (functional collectives,
DTensor) the Backend inside; before, there is the ProcessGroup alone. Per-device strings such as
``cpu:hpccomm,cuda:nccl`` get the Backend. All of them translate torch's calls for one `Runner`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.bare import Group, has_backend_class
from hpccomm.backends.batch import Message, post
from hpccomm.backends.c10d import Backend, BarrierOptions, ProcessGroup, Work
from hpccomm.backends.calling import listed, operator_of, root_of
from hpccomm.backends.describe import Results
from hpccomm.backends.layout import refuse_overlap
from hpccomm.backends.runner import Runner
from hpccomm.backends.shortcut import Shortcut
from hpccomm.backends.work import DoneWork
from hpccomm.errors import UnsupportedError

NAME = "hpccomm"

# Python objects that C++ only holds weakly.
_alive: list[Any] = []


class Collectives:
    """Torch's calls, translated; mixed into what torch takes for a group or a backend."""

    _runner: Runner
    _shortcut: Shortcut
    _held: list[Message] | None = None
    supports_coalescing = False  # torch's own property asks this class, which without an answer asks the property

    def getBackendName(self) -> str:  # noqa: D102, N802
        return NAME

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce one tensor in place."""
        tensors = listed(tensors)
        (tensor,) = tensors
        done = self._shortcut.all_reduce(tensor, opts)
        if done is not None:
            return done
        op, factor = operator_of(opts)
        operation = self._runner.door.all_reduce(tensor, op, factor)
        return self._runner.run("all_reduce", operation, tensors, opts)

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Work:
        """Reduce several tensors in place, one after the other."""
        op, factor = operator_of(opts)
        operations = [self._runner.door.all_reduce(tensor, op, factor) for tensor in tensors]
        return self._runner.run_all("all_reduce", operations, tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        """Overwrite one tensor with the root's."""
        tensors = listed(tensors)
        (tensor,) = tensors
        return self._runner.run("broadcast", self._runner.door.broadcast(tensor, root_of(opts)), tensors, opts)

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Gather one tensor of every rank into a list of tensors."""
        (blocks,), (source,) = outputs, inputs
        return self._runner.run("all_gather", self._runner.door.all_gather(blocks, source), outputs, opts)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Gather several tensors of every rank, one after the other, into one list of tensors for each rank."""
        blocks = list(zip(*outputs, strict=True))
        operations = [self._runner.door.all_gather(of, source) for of, source in zip(blocks, inputs, strict=True)]
        return self._runner.run_all("all_gather", operations, Results(outputs, blocks), opts)

    def all_gather_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        """Gather one tensor of every rank into one tensor."""
        operation = self._runner.door.all_gather([output], source)
        return self._runner.run("all_gather", operation, [output], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Gather several tensors of every rank, one after the other."""
        pairs = zip(outputs, inputs, strict=True)
        operations = [self._runner.door.all_gather([output], source) for output, source in pairs]
        return self._runner.run_all("all_gather", operations, outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Work:
        """Reduce a list of tensors, one a rank, and keep this rank's."""
        (output,), (blocks,) = outputs, inputs
        op, factor = operator_of(opts)
        operation = self._runner.door.reduce_scatter(output, blocks, op, factor)
        return self._runner.run("reduce_scatter", operation, Results(outputs, inputs), opts)

    def reduce_scatter_single(self, output: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        """Reduce one tensor and keep this rank's share."""
        op, factor = operator_of(opts)
        operation = self._runner.door.reduce_scatter(output, [source], op, factor)
        return self._runner.run("reduce_scatter", operation, Results([output], [source]), opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Reduce several tensors and keep this rank's shares, one after the other."""
        op, factor = operator_of(opts)
        pairs = zip(outputs, inputs, strict=True)
        operations = [self._runner.door.reduce_scatter(output, [source], op, factor) for output, source in pairs]
        return self._runner.run_all("reduce_scatter", operations, Results(outputs, inputs), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce one tensor into the root's."""
        tensors = listed(tensors)
        (tensor,) = tensors
        op, factor = operator_of(opts)
        return self._runner.run("reduce", self._runner.door.reduce(tensor, op, root_of(opts), factor), tensors, opts)

    def gather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Work:
        """Gather one tensor of every rank into the root's list of tensors."""
        (source,) = inputs
        blocks = outputs[0] if outputs else []
        operation = self._runner.door.gather(blocks, source, root_of(opts))
        return self._runner.run("gather", operation, Results(outputs or inputs, inputs), opts)

    def gather_single(self, output: torch.Tensor | None, source: torch.Tensor, opts: Any = None) -> Work:
        """Gather one tensor of every rank into one tensor of the root."""
        root = root_of(opts)
        blocks = [output] if root == self._runner.backend.rank and output is not None else []
        operation = self._runner.door.gather(blocks, source, root)
        return self._runner.run("gather", operation, Results(blocks or [source], [source]), opts)

    gather_into_tensor = gather_single

    def scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: Any = None
    ) -> Work:
        """Give every rank its tensor of the root's list."""
        (output,) = outputs
        blocks = inputs[0] if inputs else []
        return self._runner.run("scatter", self._runner.door.scatter(output, blocks, root_of(opts)), outputs, opts)

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None) -> Work:
        """Exchange one tensor with each rank."""
        return self._runner.run("all_to_all", self._runner.door.all_to_all(outputs, inputs), outputs, opts)

    def alltoall_base(
        self,
        output: torch.Tensor,
        source: torch.Tensor,
        received: Sequence[int],
        sent: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Exchange rows of one tensor with each rank, equally many or as many as the lists say."""
        refuse_overlap(output)  # whole, as rows may share memory with each other
        outputs, inputs = (self._rows(*of) for of in ((output, received, "receive"), (source, sent, "send")))
        return self._runner.run("all_to_all", self._runner.door.all_to_all(outputs, inputs), [output], opts)

    all_to_all_single = alltoall_base

    def _rows(self, tensor: torch.Tensor, counts: Sequence[int], what: str) -> Sequence[torch.Tensor]:
        """Cut a tensor along its first dimension, for each rank."""
        size, rows = self._runner.backend.size, tensor.shape[0] if tensor.dim() else 0
        shares = list(counts) or [rows // size] * size
        if len(shares) != size or sum(shares) != rows or min(shares) < 0:
            raise UnsupportedError(
                f"{what} {rows} rows in an all_to_all among {size} ranks",
                found=f"split sizes {list(counts) or 'not given, and the rows do not divide equally'}",
                remedy="give one size a rank that add up to the rows",
            )
        return torch.split(tensor, shares)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Work:
        """Post a receive from any rank; the returned work tells which it was."""
        (tensor,) = tensors
        found: list[int] = []
        return self._runner.post("recv", self._runner.door.recv_any(tensor, tag, found), tensors, -1, tag, found=found)

    def barrier(self, opts: Any = None) -> Work:
        """Wait for all ranks."""
        return self._runner.run("barrier", self._runner.door.barrier(), [], opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; an error names all that have not come in time, whatever `wait_all_ranks` says."""
        options = BarrierOptions()
        options.asyncOp = False
        if timeout is not None:
            options.timeout = timeout
        self.barrier(options)

    def send(self, tensors: Sequence[torch.Tensor], dest: int, tag: int = 0) -> Work:
        """Post a send; the returned work ends when the tensor may be used again."""
        (tensor,) = tensors
        return self._post(Message("send", self._runner.door.send(tensor, dest, tag), tensors, dest, tag))

    def recv(self, tensors: Sequence[torch.Tensor], source: int, tag: int = 0) -> Work:
        """Post a receive; the returned work ends when the tensor is filled."""
        (tensor,) = tensors
        return self._post(Message("recv", self._runner.door.recv(tensor, source, tag), tensors, source, tag))

    def _post(self, message: Message) -> Work:
        if self._held is None:
            return self._runner.post(message.what, message.operation, message.tensors, message.peer, message.tag)
        self._held.append(message)
        return DoneWork()

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        """Hold sends and receives back, to post them together."""
        self._held = []

    def _end_coalescing(self, device: torch.device | None = None) -> Work:
        """Post what was held back; the returned work ends all of it."""
        held, self._held = self._held or [], None
        return post(self._runner, held)

    def _get_sequence_number_for_group(self) -> int:
        return self._runner.log.started

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing: operations are numbered from the group's making on."""

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the deadline of operations that give none."""
        self._runner.timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Free the backend; a second call does nothing."""
        self._runner.close()
        _alive[:] = [kept for kept in _alive if kept._runner is not self._runner]

    def abort(self) -> None:
        """Refuse all further operations."""
        self._runner.end("it was aborted")


class HpccommBackend(Collectives, Backend):  # type: ignore[misc]
    """What C++ callers and per-device groups see."""

    supports_splitting = False

    def __init__(self, runner: Runner) -> None:
        Backend.__init__(self, runner.backend.rank, runner.backend.size)
        self._runner, self._shortcut = runner, Shortcut(runner)
        self.supports_coalescing = runner.lane is not None
        _alive.append(self)


class HpccommProcessGroup(Collectives, Group):  # type: ignore[misc]
    """A whole group over one hpccomm backend."""

    def __init__(self, runner: Runner, devices: Sequence[str]) -> None:
        Group.__init__(self, runner.backend.rank, runner.backend.size)
        self._runner, self._shortcut = runner, Shortcut(runner)
        self._devices = [torch.device(device) for device in devices]
        self.supports_coalescing = runner.lane is not None
        _alive.append(self)
        if has_backend_class():
            inside = HpccommBackend(runner)
            self._set_default_backend(ProcessGroup.BackendType.CUSTOM)
            for device in self._devices:
                self._register_backend(device, ProcessGroup.BackendType.CUSTOM, inside)
