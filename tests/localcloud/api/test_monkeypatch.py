"""A function of moto is replaced only where it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from localcloud.api.error_replies import WrongMotoError
from localcloud.api.monkeypatch import replace


def test_the_old_function_is_handed_back() -> None:
    owner = SimpleNamespace(answer=1)
    assert replace(owner, "answer", 2) == 1
    assert owner.answer == 2


def test_a_name_that_is_gone_is_an_error_and_not_a_new_name() -> None:
    with pytest.raises(WrongMotoError, match="answer"):
        replace(SimpleNamespace(), "answer", 2)
