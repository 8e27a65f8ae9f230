"""Ids of runs: they sort by time, and generated ones are recognized."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from agent.spec.run_id import is_generated_id, make_run_id


def test_run_id_sorts_by_time_and_contains_recipe() -> None:
    now = datetime.datetime(2026, 11, 20, 12, 13, 14)
    assert make_run_id(now, "Fashion MNIST", "ab12") == "20261120-121314-fashion-mnist-ab12"


@given(
    now=st.datetimes(min_value=datetime.datetime(2026, 1, 1)),
    recipe=st.text(max_size=60),
    token=st.binary(min_size=2, max_size=2).map(bytes.hex),
)
def test_every_generated_id_is_recognized(now: datetime.datetime, recipe: str, token: str) -> None:
    assert is_generated_id(make_run_id(now, recipe, token))
    assert not is_generated_id(recipe)
