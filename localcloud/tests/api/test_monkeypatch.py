"""A function of moto can only be replaced if it exists."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from localcloud.api.error_replies import WrongMotoError
from localcloud.api.monkeypatch import call_after, check_first, replace


def test_replace_returns_old_function() -> None:
    owner = SimpleNamespace(answer=1)
    assert replace(owner, "answer", 2) == 1
    assert owner.answer == 2


def test_missing_name_is_an_error() -> None:
    with pytest.raises(WrongMotoError, match="answer"):
        replace(SimpleNamespace(), "answer", 2)


class _Adder:
    def add(self, one: int, other: int) -> int:
        return one + other


def test_check_runs_first_and_its_exception_rejects_call() -> None:
    def check(self: object, one: int, other: int) -> None:
        if one < 0:
            raise ValueError("below zero")

    check_first(_Adder, "add", check)
    assert _Adder().add(1, other=2) == 3
    with pytest.raises(ValueError, match="below zero"):
        _Adder().add(-1, 2)


def test_check_of_missing_method_is_an_error() -> None:
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
