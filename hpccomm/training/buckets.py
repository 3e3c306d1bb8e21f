"""Gradients averaged over all ranks while backward goes on, for modules without DDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import torch
import torch.distributed as dist
from torch.utils.hooks import RemovableHandle

from hpccomm.errors import OptionError, TrainingError, UnsupportedError
from hpccomm.training.agreement import require_same_layout
from hpccomm.training.bucket import Bucket, cut

_MIB = 2**20


class GradientBuckets:
    """Averages a module's gradients in buckets; collective, so every rank makes it with the same module.

    A bucket's all_reduce begins in backward, as soon as all its gradients and the buckets before it are there, so all
    ranks call the same operations in the same order, whatever order their gradients come in. `wait` sends the rest::

        buckets = GradientBuckets(model)
        loss(model).backward()
        buckets.wait()
        optimizer.step()

    A gradient that a rank lacks (a branch not taken, no batch at all) counts as zeros there, and that rank gets the
    average too. A gradient that no rank has stays None. Ranks may differ in what they lack from step to step. The
    gradients are those of parameters that need one when this is made; `wait` refuses others that need one later, and
    sparse ones.

    Cost for S bytes of gradients: S more bytes of memory and two copies of them, and one all_reduce of AVG a bucket.
    What an average is computed in is the group's affair: hpccomm's sum 16-bit floats in float32 and divide once;
    torch's Gloo sums them as they are, so that they can overflow.

    Args:
        module: The same layers on every rank, with the same parameters (see `broadcast_model`).
        group: Any process group of torch that averages; None for the default one. From where a backward begins to
            `wait`, nothing else may use it.
        bucket_mib: A bucket takes gradients until it holds so many MiB.
        first_bucket_mib: The same for the first bucket.
        compare: Whether the ranks compare their modules, by the group; otherwise they are taken to be the same, and
            to make this is not collective.

    Raises:
        TrainingError: The ranks hold different modules; the same on all ranks.
        OptionError: A size is not above 0.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        group: dist.ProcessGroup | None = None,
        bucket_mib: float = 25.0,
        first_bucket_mib: float = 1.0,
        compare: bool = True,
    ) -> None:
        if not min(bucket_mib, first_bucket_mib) > 0:
            raise OptionError(
                f"gradient buckets of {bucket_mib} MiB, the first of {first_bucket_mib} MiB",
                found="a size that is not above 0",
                remedy="give the size in MiB, such as 25",
                everywhere=True,
            )
        if compare:
            require_same_layout("average gradients in buckets", module, group)
        named = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
        self._frozen = [(name, one) for name, one in module.named_parameters() if not one.requires_grad]
        limit, first = bucket_mib * _MIB, min(first_bucket_mib, bucket_mib) * _MIB
        self._group, self._names = group, {id(one): name for name, one in named}
        self._buckets = [Bucket(part) for part in cut([one for _, one in named], limit=limit, first_limit=first)]
        self._homes = {id(one): bucket for bucket in self._buckets for one in bucket.parameters}
        self._begun: list[dist.Work | Exception] = []
        self._synchronizes = True
        self._hooks = [_hooked(one, self._arrived) for _, one in named]

    @property
    def count(self) -> int:
        """How many buckets there are."""
        return len(self._buckets)

    @property
    def begun(self) -> int:
        """How many buckets' operations have begun since the last `wait`."""
        return len(self._begun)

    def wait(self) -> None:
        """Send what is left, wait for all averages and put them into the parameters' gradients; collective.

        To be called once after every backward that is not inside `no_sync`, also by a rank that had nothing to do.

        Raises:
            UnsupportedError: A gradient is sparse on some rank; the same on all ranks.
            TrainingError: A parameter needs a gradient that did not when this was made.
            Exception: What an operation failed with, on every rank where its group says so: hpccomm's do on all of
                them, at the latest in the next `wait`. No gradient has been changed by any of these.
        """
        try:
            while len(self._begun) < len(self._buckets):
                self._begin()
            failures = [error for error in map(_ended, self._begun) if error is not None]
        finally:
            self._reset()
        if failures:
            raise failures[0]
        self._refuse_strangers()
        for bucket in self._buckets:
            bucket.deliver()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients add up in this rank alone; what stands in them goes out with the first backward after."""
        before, self._synchronizes = self._synchronizes, False
        try:
            yield
        finally:
            self._synchronizes = before

    def close(self) -> None:
        """Take the hooks off the parameters, once; what has begun goes on and is not waited for."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._reset()

    def __enter__(self) -> GradientBuckets:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _arrived(self, parameter: torch.Tensor) -> None:
        bucket = self._homes[id(parameter)]
        if id(parameter) in bucket.arrived:
            raise TrainingError(
                "average gradients in buckets",
                found=f"the gradient of {self._names[id(parameter)]} came twice since the last wait",
                remedy="call wait() after every backward, put all but the last into no_sync(), and use checkpoints "
                "with use_reentrant=False",
            )
        if not self._synchronizes:
            return
        bucket.arrived.add(id(parameter))
        while len(self._begun) < len(self._buckets) and self._buckets[len(self._begun)].complete:
            self._begin()

    def _begin(self) -> None:
        """Begin the next bucket; `wait` raises what goes wrong, since the others' turns must come all the same."""
        try:
            self._begun.append(self._buckets[len(self._begun)].begin(self._group))
        except Exception as error:
            self._begun.append(error)

    def _refuse_strangers(self) -> None:
        """Refuse gradients that no bucket takes, once all ranks have averaged the others."""
        sparse = [self._names[id(one)] for bucket in self._buckets for one in bucket.sparse]
        if sparse:
            raise UnsupportedError(
                "average gradients in buckets",
                found=f"on some rank the gradient of {sparse[0]} is sparse",
                remedy="build the embedding with sparse=False",
                everywhere=True,
            )
        thawed = [name for name, one in self._frozen if one.requires_grad]
        if thawed:
            raise TrainingError(
                "average gradients in buckets",
                found=f"{thawed[0]} needs a gradient, but did not when the buckets were made",
                remedy="close() these buckets, and make new ones after parameters are unfrozen",
            )

    def _reset(self) -> None:
        self._begun.clear()
        for bucket in self._buckets:
            bucket.arrived.clear()


def _hooked(parameter: torch.nn.Parameter, call: Callable[[torch.Tensor], None]) -> RemovableHandle:
    """Have something called after each gradient of a parameter."""
    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(call)  # type: ignore[no-untyped-call]
    return handle


def _ended(work: dist.Work | Exception) -> Exception | None:
    """Wait for an operation and give what it failed with."""
    if isinstance(work, Exception):
        return work
    try:
        work.wait()
    except Exception as error:
        return error
    return None
