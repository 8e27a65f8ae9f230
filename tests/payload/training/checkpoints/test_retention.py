from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.training.checkpoints.retention import Retention

CHECKPOINTS = st.dictionaries(st.integers(0, 10**9).map("step-{:08d}".format), st.none() | st.floats(0, 1), max_size=12)


@given(checkpoints=CHECKPOINTS, newest=st.integers(1, 6), best=st.booleans())
def test_the_newest_and_the_best_stay_and_no_others(
    checkpoints: dict[str, float | None], newest: int, best: bool
) -> None:
    kept = Retention(newest=newest, best=best).kept(checkpoints)
    order = sorted(checkpoints)
    assert kept >= set(order[-newest:])
    others = kept - set(order[-newest:])
    assert len(others) <= best
    measured = [accuracy for accuracy in checkpoints.values() if accuracy is not None]
    if best and measured:
        assert max(accuracy for name in kept if (accuracy := checkpoints[name]) is not None) == max(measured)
    for name in others:
        assert checkpoints[name] == max(measured)


@given(accuracies=st.lists(st.none() | st.floats(0, 1), max_size=12), newest=st.integers(1, 4))
def test_what_is_kept_step_by_step_is_what_is_kept_of_all(accuracies: list[float | None], newest: int) -> None:
    retention = Retention(newest=newest, best=True)
    every: dict[str, float | None] = {}
    left: dict[str, float | None] = {}
    for step, accuracy in enumerate(accuracies):
        name = f"step-{step:08d}"
        every[name] = left[name] = accuracy
        left = {name: left[name] for name in retention.kept(left)}
        assert set(left) == retention.kept(every)


def test_none_is_too_few() -> None:
    with pytest.raises(ValueError, match="newest = 0"):
        Retention(newest=0)
