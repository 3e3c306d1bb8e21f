"""One backend expression on all ranks of a group, or the same error; it knows no torch and builds nothing."""

from __future__ import annotations

from collections.abc import Callable

from hpccomm.backends.registry import check
from hpccomm.errors import OptionError
from hpccomm.exchange import Exchange, together
from hpccomm.expression import Expression, load


def agreed(exchange: Exchange, ask: Callable[[], str | Expression]) -> Expression:
    """Parse and check an expression, and see that all ranks ask for the same; collective.

    Args:
        exchange: Reaches the ranks that take part.
        ask: Gives what this rank asks for; may raise.

    Raises:
        HpccommError: The same on all ranks.
    """
    expression = together(exchange, lambda: _checked(ask()))
    _refuse_difference(exchange.all_gather(str(expression)))
    return expression


def _checked(asked: str | Expression) -> Expression:
    expression = asked if isinstance(asked, Expression) else load(asked)
    check(expression)
    return expression


def _refuse_difference(asked: list[str]) -> None:
    if len(set(asked)) > 1:
        raise OptionError(
            "use the same backend on all ranks",
            found="; ".join(f"{text} on rank {asked.index(text)}" for text in dict.fromkeys(asked)),
            remedy="pass the same backend everywhere",
            everywhere=True,
        )
