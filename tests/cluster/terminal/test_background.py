"""Facts about what is done ahead: its result is had once it is there, and its error where it is asked for."""

from __future__ import annotations

import threading

import pytest

from cluster.terminal.background import Ahead


def test_a_result_is_waited_for() -> None:
    gate = threading.Event()
    ahead = Ahead(lambda: gate.wait(60) and "there")
    gate.set()
    assert ahead.result() == ahead.result() == "there"


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    ahead = Ahead(lambda: int("x"))
    with pytest.raises(ValueError, match="invalid literal"):
        ahead.result()
