"""Parse and print backend expressions: one string for a backend made of backends.

::

    expression = name [ "(" [ item { "," item } ] ")" ]     # white space, newlines and comments are free
    item       = expression | name "=" value                # options stand after the arguments
    value      = "true" | "false" | integer | float | word | a string in double quotes with JSON's escapes

A name is a letter followed by letters, digits and underscores. A word may hold ``. : / + -`` too and start
with any of its characters, so ``4MiB``, ``cuda:0`` and ``10.0.0.0/8`` need no quotes.

This module knows no backends, options or their meaning; only that `failover` stands outermost.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from hpccomm.errors import ExpressionError

Value: TypeAlias = str | int | float | bool

MAX_DEPTH = 50
"""Levels of nesting that an expression may have."""

_MAY_WRAP_FAILOVER = frozenset({"checked", "faulty"})
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_.:/+-]+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,400}", re.ASCII)
_BLANK = re.compile(r"(?:\s|#.*)*")
_TRUTH = {"true": True, "false": False}

_FORM = (
    "write it like failover(hierarchical(nccl, mpi4py, by=node), gloo); "
    "a value with characters other than letters, digits and _ . : / + - goes in double quotes"
)
_CUT = (
    "close what is open; if the text was longer, a comma may have cut it: sbatch --export=... and "
    "srun --export=... split at commas, so export the variable in the job script, in single quotes"
)
_RANGE = "a number that is not finite or beyond the range of floats"
_FAILOVER = "put failover outermost, e.g. failover(ring(gloo), gloo); only checked and faulty may wrap it"


@dataclass(frozen=True)
class Expression:
    """A backend as text describes it; ``parse(str(expression)) == expression`` for every one.

    Attributes:
        name: The backend, or a bare word that means something to the backend around it.
        arguments: Positional arguments.
        options: Pairs of name and value in the order written.

    Raises:
        ExpressionError: The parts could not be printed and read back.
    """

    name: str
    arguments: tuple[Expression, ...] = ()
    options: tuple[tuple[str, Value], ...] = ()

    def __post_init__(self) -> None:
        found = _fault(self)
        if found:
            raise ExpressionError(f"build the backend expression {self.name!r}", found=found, remedy=_FORM)

    @property
    def keywords(self) -> Mapping[str, Value]:
        """The options as a read-only mapping."""
        return MappingProxyType(dict(self.options))

    @property
    def depth(self) -> int:
        """Levels of nesting, 1 for a bare name."""
        return 1 + max((argument.depth for argument in self.arguments), default=0)

    def walk(self, path: str = "") -> Iterator[tuple[str, Expression]]:
        """Yield this node and all below, each with its unique path, e.g. ``"hierarchical/1:mpi4py"``."""
        path = path or self.name
        yield path, self
        for index, argument in enumerate(self.arguments):
            yield from argument.walk(f"{path}/{index}:{argument.name}")

    def __str__(self) -> str:
        items = [str(argument) for argument in self.arguments]
        items += [f"{name}={_print_value(value)}" for name, value in self.options]
        return f"{self.name}({', '.join(items)})" if items else self.name


def parse(text: str, *, source: str = "") -> Expression:
    """Read a backend expression.

    Args:
        text: The expression.
        source: Where the text stood, for errors: a variable, an option, a file.

    Raises:
        ExpressionError: The text is none; the error shows the place and what is expected there.
    """
    return _Parser(text, source).whole()


def load(text: str, *, source: str = "") -> Expression:
    """Read a backend expression, or with ``@path`` the one in that file (UTF-8).

    Raises:
        ExpressionError: The file cannot be read, or the text is no expression.
    """
    text = text.strip()
    if not text.startswith("@"):
        return parse(text, source=source)
    path = text[1:]
    origin = f"the file {path!r}" + (f" ({source})" if source else "")
    try:
        content = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:
        raise ExpressionError(
            f"read the backend expression from {origin}",
            found=str(error),
            remedy="name a text file that every rank can read, or write the expression itself without '@'",
        ) from error
    return parse(content, source=origin)


def _fault(expression: Expression) -> str | None:
    """Say what keeps an expression from being printed and read back, if anything."""
    names = [name for name, _ in expression.options]
    for name in (expression.name, *names):
        if not _NAME.fullmatch(name):
            return f"the name {name!r}, which is not a letter followed by letters, digits and underscores"
    if len(set(names)) < len(names):
        return "an option given twice"
    below = (node for argument in expression.arguments for _, node in argument.walk())
    if expression.name not in _MAY_WRAP_FAILOVER and any(node.name == "failover" for node in below):
        return f"failover inside {expression.name}"
    if expression.depth > MAX_DEPTH:
        return f"more than {MAX_DEPTH} levels"
    faults = (_value_fault(value) for _, value in expression.options)
    return next((fault for fault in faults if fault), None)


def _value_fault(value: Value) -> str | None:
    """Say why an option cannot have this value, if so."""
    if type(value) not in (str, int, float, bool):
        return f"a value of type {type(value).__name__} where str, int, float or bool is expected"
    try:
        if isinstance(value, str):
            value.encode()
            return None
        return None if math.isfinite(value) else _RANGE
    except UnicodeEncodeError:
        return f"the string {value!r}, which is no valid Unicode text"
    except OverflowError:
        return _RANGE


def _print_value(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    plain = _WORD.fullmatch(value) and value not in _TRUTH and not _NUMBER.fullmatch(value)
    return value if plain else json.dumps(value)


class _Parser:
    """Recursive descent over one text; `position` always stands at a token or at the end."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.inside: list[str] = []
        self.position = 0
        self.move_to(0)

    def whole(self) -> Expression:
        if self.at_end():
            raise self.error("no expression, only blank text", "name a backend, e.g. auto, or unset it")
        start = self.position
        expression = self.call(self.match(_NAME, "a backend"), start)
        if not self.at_end():
            remedy = "give one expression; to combine backends put one around them: failover(nccl, gloo)"
            raise self.error(f"{self.token()!r} after the end of the expression", remedy)
        return expression

    def call(self, name: str, start: int) -> Expression:
        """Read what follows a name: nothing, or items in parentheses."""
        outer = [wrapper for wrapper in self.inside if wrapper not in _MAY_WRAP_FAILOVER]
        if name == "failover" and outer:
            raise self.error(f"failover inside {outer[-1]}", _FAILOVER, at=start)
        if len(self.inside) == MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} levels", "nest less deeply", at=start)
        arguments: list[Expression] = []
        options: dict[str, Value] = {}
        if self.take("("):
            self.inside.append(name)
            closed = self.take(")")
            while not closed:
                self.item(arguments, options)
                closed = self.take(")")
                if not closed and not self.take(","):
                    raise self.unexpected("',' or ')'")
            self.inside.pop()
        return Expression(name, tuple(arguments), tuple(options.items()))

    def item(self, arguments: list[Expression], options: dict[str, Value]) -> None:
        start = self.position
        name = self.match(_NAME, "a backend, a word or option=value")
        if not self.take("="):
            if options:
                raise self.error(f"the argument {name!r} after an option", "put the options last", at=start)
            arguments.append(self.call(name, start))
        elif name in options:
            raise self.error(f"the option {name!r} given twice", "keep one of the two", at=start)
        else:
            options[name] = self.value(name)

    def value(self, option: str) -> Value:
        start = self.position
        value = self.string() if self.text.startswith('"', start) else self.word(option)
        fault = _value_fault(value)
        if fault:
            raise self.error(fault, f"give the option {option!r} another value", at=start)
        return value

    def word(self, option: str) -> Value:
        word = self.match(_WORD, f"a value for the option {option!r}")
        if word in _TRUTH:
            return _TRUTH[word]
        if not _NUMBER.fullmatch(word):
            return word
        number = float(word)
        return int(word) if _INTEGER.fullmatch(word) and math.isfinite(number) else number

    def string(self) -> str:
        try:
            value, end = json.JSONDecoder().raw_decode(self.text, self.position)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated"):
                raise self.error("a string without its closing double quote", _CUT) from None
            found = "a string with a wrong escape or a raw control character"
            remedy = r"write \" \\ \n \t or \uXXXX for a character that cannot stand as it is"
            raise self.error(found, remedy, at=error.pos) from None
        self.move_to(end)
        return str(value)

    def match(self, pattern: re.Pattern[str], expected: str) -> str:
        found = pattern.match(self.text, self.position)
        if not found:
            raise self.unexpected(expected)
        self.move_to(found.end())
        return found[0]

    def take(self, symbol: str) -> bool:
        found = self.text.startswith(symbol, self.position)
        if found:
            self.move_to(self.position + 1)
        return found

    def move_to(self, position: int) -> None:
        blank = _BLANK.match(self.text, position)
        self.position = blank.end() if blank else position

    def at_end(self) -> bool:
        return self.position == len(self.text)

    def token(self) -> str:
        word = _WORD.match(self.text, self.position)
        return word[0] if word else self.text[self.position]

    def unexpected(self, expected: str) -> ExpressionError:
        if self.at_end():
            return self.error(f"the text ends where {expected} is expected", _CUT if self.inside else _FORM)
        return self.error(f"{self.token()!r} where {expected} is expected", _FORM)

    def error(self, found: str, remedy: str, *, at: int | None = None) -> ExpressionError:
        """Make the error that shows the line at fault with a caret under the place."""
        place = min(self.position if at is None else at, len(self.text.rstrip()))
        first = self.text.rfind("\n", 0, place) + 1
        column = place - first
        window = max(0, column - 60)
        line = self.text[first:].partition("\n")[0][window : window + 100]
        shown = "".join(character if character.isprintable() else " " for character in line)
        source = f" from {self.source}" if self.source else ""
        of_line = f" of line {self.text.count(chr(10), 0, place) + 1}" if "\n" in self.text else ""
        return ExpressionError(
            f"parse the backend expression{source}\n    {shown}\n    {' ' * (column - window)}^",
            found=f"{found}, at character {column + 1}{of_line}",
            remedy=remedy,
        )
