"""The exception family."""

import copy
import pickle

import pytest

from hpccomm import errors
from hpccomm.errors import HpccommError

FAMILY = {
    "LaunchError": RuntimeError,
    "TopologyError": RuntimeError,
    "NetworkError": RuntimeError,
    "ExpressionError": ValueError,
    "OptionError": ValueError,
    "ScheduleError": ValueError,
    "BackendError": RuntimeError,
    "DeadGroupError": RuntimeError,
    "RankLostError": RuntimeError,
    "MismatchError": ValueError,
    "UnsupportedError": TypeError,
    "DeadlineError": TimeoutError,
    "TrainingError": RuntimeError,
    "WorldError": RuntimeError,
    "JobError": RuntimeError,
}
KINDS = [HpccommError, *(getattr(errors, name) for name in FAMILY)]


def make(kind, **keywords):
    return kind("all_reduce of\n    a bool tensor", found="AVG over mpi4py", remedy="use SUM", **keywords)


def test_the_table_lists_every_class_of_the_module():
    defined = {kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and kind is not HpccommError}
    assert {name for name in defined if name.endswith("Error")} == set(FAMILY)


@pytest.mark.parametrize("name", FAMILY)
def test_each_is_caught_as_the_family_and_as_the_builtin(name):
    for base in (HpccommError, FAMILY[name]):
        with pytest.raises(base):
            raise make(getattr(errors, name))


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_says_asked_found_and_remedy(kind):
    error = make(kind)
    assert str(error).splitlines() == [
        "all_reduce of",
        "    a bool tensor",
        "  found: AVG over mpi4py",
        "  do:    use SUM",
    ]
    assert error.summary == "all_reduce of a bool tensor: AVG over mpi4py"


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_survives_pickle_and_copy(kind, everywhere):
    error = make(kind, everywhere=everywhere)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind
        assert str(twin) == str(error)
        assert (twin.asked, twin.found, twin.remedy) == (error.asked, error.found, error.remedy)
        assert twin.everywhere is everywhere


def test_found_and_remedy_must_be_given():
    with pytest.raises(TypeError):
        HpccommError("run")
