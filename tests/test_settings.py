"""Settings: which must be equal on all ranks, and what is said of those that are not."""

from __future__ import annotations

import pytest

from hpccomm.bootstrap.settings import check_equal, settings
from hpccomm.errors import OptionError


def test_where_a_rank_is_may_differ_and_nothing_else() -> None:
    environ = {"HPCCOMM_NODE_ID": "a", "HPCCOMM_SWITCH_ID": "s", "HPCCOMM_BACKEND": "gloo", "HOME": "/root"}
    assert settings(environ) == {"HPCCOMM_BACKEND": "gloo"}


def test_a_difference_is_named_with_who_has_what() -> None:
    check_equal([{"HPCCOMM_BACKEND": "gloo"}] * 3)
    with pytest.raises(OptionError) as found:
        check_equal([{"HPCCOMM_BACKEND": "gloo"}, {}, {"HPCCOMM_BACKEND": "gloo"}])
    assert found.value.everywhere
    assert "HPCCOMM_BACKEND" in found.value.asked
    assert found.value.found == "'gloo' on ranks 0, 2; unset on rank 1"
