"""Build one of several backends on channels of its own, such that all ranks know alike whether it stands."""

from __future__ import annotations

from hpccomm.backends.base import Backend
from hpccomm.backends.context import Context, Health
from hpccomm.backends.device import device_of
from hpccomm.backends.registry import build
from hpccomm.backends.staged import staged
from hpccomm.errors import DeadlineError, RankLostError
from hpccomm.exchange import first_error
from hpccomm.expression import Expression


def build_apart(expression: Expression, context: Context, name: str, timeout_s: float) -> tuple[Backend | None, str]:
    """Build a backend, which takes a GPU's tensors where there is one, as those beside it may; collective.

    Args:
        expression: The backend.
        context: The group, of which it becomes a part.
        name: Tells this part from the group's others.
        timeout_s: How long it may wait for ranks and connections.

    Returns:
        The backend, or None and why it does not stand; alike on all ranks.

    Raises:
        HpccommError: Ranks did not come to tell, so that nothing is known of them.
    """
    made: Backend | None = None
    part: Context | None = None
    failure: Exception | None = None
    try:
        part = context.child(name)
        part.timeout_s, part.health = timeout_s, Health()
        made = staged(build(expression, part), device_of(part.device))
    except Exception as error:
        failure = error
    refusal = first_error(context.exchange, failure)
    if refusal is None:
        return made, ""
    if part is not None and not isinstance(refusal, (DeadlineError, RankLostError)):  # MPI is at work on none of it
        discard(context, part)
    return None, refusal.summary


def discard(context: Context, part: Context) -> None:
    """Free the channels of a part of a group that no rank will use; collective."""
    part.close_parts()
    part.close()
    context.parts[:] = [other for other in context.parts if other is not part]
