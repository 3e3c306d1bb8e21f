"""The registry: a new backend is one class and one line, and wrong expressions are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import torch
from torch.distributed import HashStore

from hpccomm.backends import names, registry
from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.context import Context
from hpccomm.backends.gloo import GlooBackend
from hpccomm.errors import BackendError, ExpressionError, OptionError
from hpccomm.expression import parse
from hpccomm.topology import identify, resolve


class Alone(Backend):
    """All collectives of a group of one rank."""

    support = GlooBackend.support

    def _nothing(self, *arguments: object) -> Operation:
        return
        yield

    all_reduce = broadcast = barrier = _nothing

    def all_gather(self, output, source, *arguments: object) -> Operation:
        output.copy_(source)
        return self._nothing()

    reduce_scatter = all_gather


@pytest.fixture
def context() -> Context:
    return Context(resolve(0, [identify({}, None)]), HashStore(), None, torch.device("cpu"), "127.0.0.1", 5.0)


@pytest.fixture
def alone() -> Iterator[None]:
    registry.register("alone", Alone)
    yield
    del registry._TABLE["alone"]


def test_a_new_backend_is_one_class_and_one_line(alone: None, context: Context) -> None:
    backend = registry.build(parse("faulty(hierarchical(alone, alone), late, rank=0, seconds=0.01)"), context)
    tensor = torch.ones(3)
    waited = list(backend.all_reduce(tensor, torch.distributed.ReduceOp.SUM))
    assert set(waited) == {"nothing, on purpose"}
    assert backend.expression == "faulty(hierarchical(alone, alone), late, rank=0, seconds=0.01)"
    backend.close()


def test_a_name_is_taken_once(alone: None) -> None:
    with pytest.raises(ExpressionError, match="taken"):
        registry.register("alone", Alone)


def test_a_row_says_which_arguments_are_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(names.BACKENDS, "mixed", names.Row("nowhere:nothing", backends=2))
    names.check_names(parse("checked(mixed(gloo, ring(mpi4py), some(words), more))"))
    for text in ("mixed(gloo, nowhere, words)", "mixed(gloo, ring(nowhere), words)", "ring(nowhere)"):
        with pytest.raises(ExpressionError, match="no backend is called 'nowhere'"):
            names.check_names(parse(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gloop", "'gloop'.*gloo"),
        ("gloo(x)", "too many positional"),
        ("gloo(speed=3)", "speed.*gloo takes"),
        ("hierarchical(gloo)", "inter.*hierarchical takes"),
        ("faulty(gloo)", "kind.*faulty takes"),
        ("faulty(gloo, raise, rank=x)", "rank=x is of type str, not int"),
        ("faulty(gloo, late, seconds=x)", "seconds=x.*not float"),
        ("gloo(threads=true)", "threads=True is of type bool, not int"),
        ("hierarchical(gloo, gloo, by=2.5)", "by=2.5 is of type float, not str or int"),
        ("mpi4py(deadline=3)", "not str"),
    ],
)
def test_wrong_expressions_are_refused_with_what_there_is(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        registry.check(parse(text))
    assert re.search(words, str(refused.value), re.DOTALL)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("gloo(threads=0)", OptionError),
        ("gloo(accumulate=half)", OptionError),
        ("faulty(gloo, explode)", OptionError),
        ("faulty(gloo, raise, rank=1)", OptionError),
        ("faulty(gloo, raise, rank=0, call=-1)", OptionError),
        ("hierarchical(gloo, gloo, by=rack)", OptionError),
        ("hierarchical(gloo, gloo, by=0)", OptionError),
        ("hierarchical(gloo, nowhere)", ExpressionError),
        ("mpi4py", BackendError),
    ],
)
def test_what_cannot_be_built_is_refused(text: str, error: type[Exception], context: Context) -> None:
    with pytest.raises(error):
        registry.build(parse(text), context)


@pytest.mark.parametrize("name", ("mpi4py", "auto", "shm"))
def test_a_way_to_hold_the_deadline_that_there_is_not_is_refused_with_what_there_is(
    name: str, context: Context
) -> None:
    with pytest.raises(OptionError) as refused:
        registry.build(parse(f"{name}(deadline=soon)"), context)
    assert (refused.value.asked, refused.value.remedy) == (
        f"build backend {name}(deadline=soon)",
        "give arrival or strict",
    )
    assert refused.value.everywhere


@pytest.mark.parametrize("asked", ("0", "-1", "2.5", "much"))
def test_a_limit_that_is_no_number_from_1_is_refused(
    asked: str, alone: None, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCCOMM_MAX_COUNT", asked)
    with pytest.raises(OptionError, match=f"HPCCOMM_MAX_COUNT='{asked}'"):
        registry.build(parse("alone"), context)
