"""End a Slurm job in order before its time is up: a signal, agreement at a step, a checkpoint, a requeue.

::

    preemption = Preemption()                    # first of all: until then the signal ends the process
    with hpccomm.init() as world:
        for step in range(first, last):
            train(step)
            if preemption.agreed():              # collective: the same answer on all ranks
                save(step + 1)
                preemption.requeue()             # collective: ends the job, which starts again later
                break

In the job: ``#SBATCH --signal=USR1@120``, for a warning 120 seconds before the end (Slurm may be a minute early), and
``--requeue --open-mode=append``. The signal reaches the tasks that srun starts. With mpiexec let the script have it
(``--signal=B:USR1@120``) and pass it on; mpiexec hands it to all ranks (Intel's mpirun, a shell script, would end)::

    mpiexec … & trap "kill -USR1 $!" USR1; wait $! || wait $!

It knows torch.distributed and Slurm's scontrol, nothing of the rest of hpccomm. torch comes in late, as its import
takes seconds in which a warning may come.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from hpccomm.errors import JobError

if TYPE_CHECKING:
    import torch.distributed as dist


class Preemption:
    """Notice Slurm's warning, and let all ranks act on it at the same step; made in the main thread.

    Args:
        signals: The signals that warn. TERM, which Slurm sends where partitions preempt each other, may be added where
            srun starts the ranks; mpirun takes it for the order to end.
        device: Device of the tensor that ranks agree by, one that the group serves.

    From then on these signals are held back from this process, its threads and its children: one that arrives inside a
    library's call would fail it, as it does Intel MPI's.
    """

    def __init__(self, signals: Sequence[signal.Signals] = (signal.SIGUSR1,), *, device: str = "cpu") -> None:
        self._signals, self._device, self._was_warned = {*signals}, device, False
        for number in signals:  # where threads that stood before let it through
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)

    @property
    def warned(self) -> bool:
        """Whether this process was warned; once it was, that stays so."""
        if self._signals & signal.sigpending():  # until a thread that lets it through takes it
            self._was_warned = True
        return self._was_warned

    def agreed(self, group: dist.ProcessGroup | None = None) -> bool:
        """Tell whether any rank was warned; collective, once a step or less often.

        Ranks are warned at different moments, so what a rank knows alone decides nothing.
        """
        import torch
        import torch.distributed as dist

        warned = torch.tensor([int(self.warned)], dtype=torch.int32, device=self._device)
        dist.all_reduce(warned, dist.ReduceOp.MAX, group=group)
        return bool(warned.item())

    def requeue(self, group: dist.ProcessGroup | None = None) -> None:
        """Have Slurm end this job and start it again; collective.

        All ranks must have saved what they need before they call it: Slurm ends them soon after, or they end.

        Raises:
            JobError: On all ranks: it is no Slurm job, or Slurm refuses.
        """
        import torch
        import torch.distributed as dist

        dist.barrier(group=group)
        answers: list[Any] = [None]
        root = 0 if group is None else dist.get_global_rank(group, 0)
        if dist.get_rank() == root:
            answers = [_scontrol_requeue(os.environ.get("SLURM_JOB_ID", ""))]
        dist.broadcast_object_list(answers, src=root, group=group, device=torch.device(self._device))
        if answers[0]:
            raise JobError(
                "requeue this job",
                found=answers[0],
                remedy="submit it with sbatch --requeue; what was saved serves a job that is submitted anew, too",
                everywhere=True,
            )

    def _on_signal(self, _: int, __: FrameType | None) -> None:
        self._was_warned = True


def _scontrol_requeue(job: str) -> str:
    """Ask for it; give what stands in the way, if anything."""
    if not job:
        return "no SLURM_JOB_ID: this is no Slurm job"
    try:
        ran = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"scontrol: {error}"
    return "" if ran.returncode == 0 else ran.stderr.strip() or f"scontrol ended with status {ran.returncode}"
