"""The table of backends, and how an expression becomes one of them.

A new backend is one line in `names.BACKENDS` (or one call of `register`): a class or function that takes a `Context`,
then the expression's arguments as `Expression`s, then its options by name. It is imported when it is first named. Every
algorithm of `hpccomm.algorithms` is a combinator by its own name.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from importlib import import_module
from typing import get_args, get_type_hints

from hpccomm.algorithms import ALGORITHMS
from hpccomm.backends.base import MAX_COUNT, Backend
from hpccomm.backends.context import Context
from hpccomm.backends.names import BACKENDS, unknown, within
from hpccomm.backends.traced import traced
from hpccomm.errors import ExpressionError, OptionError
from hpccomm.expression import Expression
from hpccomm.timeline.recorder import recording

Builder = Callable[..., Backend]

_TABLE: dict[str, str | Builder] = {name: row.builder for name, row in BACKENDS.items()}


def names() -> list[str]:
    """List the registered backends."""
    return sorted({*_TABLE, *ALGORITHMS})


def register(name: str, builder: Builder) -> None:
    """Add a backend under a new name, e.g. one that a program brings itself."""
    if name in names():
        raise ExpressionError(f"register backend {name!r}", found="the name is taken", remedy="choose another name")
    _TABLE[name] = builder


def build(expression: Expression, context: Context) -> Backend:
    """Build the backend that an expression describes; collective over the context's ranks.

    Raises:
        ExpressionError: Unknown name, or arguments that its builder does not take.
        BackendError: The backend cannot work here.
        OptionError: HPCCOMM_MAX_COUNT, which limits the calls of all parts of a backend, is no number from 1.
    """
    builder, most = _builder(expression), _most_asked()
    arguments = bind(expression, builder)
    backend = builder(context, *arguments.args, **arguments.kwargs)
    backend.expression = backend.expression or str(expression)
    backend.max_count = min(backend.max_count, most)
    return backend if recording.recorder is None else traced(backend, recording.recorder)


def check(expression: Expression) -> None:
    """Refuse an expression that names an unknown backend, passes arguments that it does not take, or nests wrongly.

    `checked` compares whole operations, so that it stands outermost; `faulty` may stand around it.
    """
    bind(expression, _builder(expression))
    if expression.name != "faulty":
        for inner in within(expression):
            _refuse_checked_inside(expression, inner)


def _refuse_checked_inside(whole: Expression, part: Expression) -> None:
    if part.name == "checked":
        raise ExpressionError(
            f"build backend {whole}",
            found="checked(…) stands inside",
            remedy="put it around the whole: checked(…) compares what users call",
            everywhere=True,
        )
    for inner in within(part):
        _refuse_checked_inside(whole, inner)


def bind(expression: Expression, builder: Builder) -> inspect.BoundArguments:
    """Match an expression's arguments and options with a builder's parameters after the context."""
    signature = inspect.signature(builder)
    parameters = list(signature.parameters.values())[1:]
    signature = signature.replace(parameters=parameters)
    try:
        bound = signature.bind(*expression.arguments, **dict(expression.options))
        for name, value in expression.options:
            _check_type(name, value, builder)
    except TypeError as error:
        wanted = ", ".join(str(p).split(":")[0].split("=")[0].strip() for p in parameters)
        raise ExpressionError(
            f"build backend {expression}",
            found=str(error),
            remedy=f"{expression.name} takes ({wanted})",
            everywhere=True,
        ) from None
    return bound


def _check_type(name: str, value: object, builder: Builder) -> None:
    """Refuse an option whose value is of no type that its parameter's annotation names."""
    hints = get_type_hints(builder.__init__ if inspect.isclass(builder) else builder)
    wanted = get_args(hints[name]) or (hints[name],) if name in hints else ()
    fits = type(value) in wanted or (float in wanted and type(value) is int)
    if wanted and not fits:
        names = " or ".join(kind.__name__ for kind in wanted)
        raise TypeError(f"{name}={value} is of type {type(value).__name__}, not {names}")


def _builder(expression: Expression) -> Builder:
    entry = _TABLE.get(expression.name)
    if entry is None and expression.name in ALGORITHMS:
        scheduled: Builder = import_module("hpccomm.backends.scheduled").builder(expression.name)
        return scheduled
    if entry is None:
        raise unknown(expression, names())
    if isinstance(entry, str):
        module, _, attribute = entry.partition(":")
        entry = _TABLE[expression.name] = getattr(import_module(module), attribute)
    return entry


def _most_asked() -> int:
    text = os.environ.get("HPCCOMM_MAX_COUNT", "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise OptionError(
            f"read HPCCOMM_MAX_COUNT={text!r}",
            found="not a positive whole number",
            remedy="give the most elements (bytes, where data is only moved) that one library call gets",
            everywhere=True,
        )
    return int(text) if text else MAX_COUNT
