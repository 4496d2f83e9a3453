"""Errors meant for the user say cause, place and next step."""

from __future__ import annotations

import pytest

from verax.base.errors import ModelError, UsageError, VeraxError
from verax.base.optional import optional


def test_text_has_cause_place_and_next_step_on_their_own_lines() -> None:
    error = ModelError("the file ends early", place="net.onnx", next_step="download it again")
    assert str(error) == "the file ends early\n  at: net.onnx\n  next: download it again"


def test_parts_that_are_not_given_are_left_out() -> None:
    assert str(UsageError("too many inputs")) == "too many inputs"


def test_every_error_leaves_with_code_2() -> None:
    kinds = VeraxError.__subclasses__()
    assert len(kinds) >= 7
    assert {kind.exit_code for kind in kinds} == {2}


def test_a_missing_optional_package_is_named_with_its_pip_line() -> None:
    with pytest.raises(VeraxError, match="no_such_package_here") as caught:
        optional("no_such_package_here.inner", "to test this")
    assert caught.value.next_step == "pip install no_such_package_here"


def test_an_installed_package_is_returned() -> None:
    assert optional("json", "to test this").loads("[1]") == [1]
