"""A function of moto can only be replaced if it exists."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from localcloud.api.error_replies import WrongMotoError
from localcloud.api.monkeypatch import call_after, check_first, replace


def test_the_old_function_is_handed_back() -> None:
    owner = SimpleNamespace(answer=1)
    assert replace(owner, "answer", 2) == 1
    assert owner.answer == 2


def test_a_name_that_is_gone_is_an_error_and_not_a_new_name() -> None:
    with pytest.raises(WrongMotoError, match="answer"):
        replace(SimpleNamespace(), "answer", 2)


class _Adder:
    def add(self, one: int, other: int) -> int:
        return one + other


def test_a_check_comes_first_and_what_it_raises_refuses_the_call() -> None:
    def check(self: object, one: int, other: int) -> None:
        if one < 0:
            raise ValueError("below zero")

    check_first(_Adder, "add", check)
    assert _Adder().add(1, other=2) == 3
    with pytest.raises(ValueError, match="below zero"):
        _Adder().add(-1, 2)


def test_a_check_of_a_method_that_is_gone_is_an_error() -> None:
    with pytest.raises(WrongMotoError, match="subtract"):
        check_first(_Adder, "subtract", lambda: None)


def test_hook_gets_the_returned_value_and_affects_one_object() -> None:
    seen: list[int] = []
    one, other = _Adder(), _Adder()
    call_after(one, "add", seen.append)
    assert (one.add(1, other=2), other.add(3, 4)) == (3, 7)
    assert seen == [3]
    with pytest.raises(WrongMotoError, match="subtract"):
        call_after(one, "subtract", seen.append)
