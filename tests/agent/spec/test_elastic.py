from __future__ import annotations

import pytest

from agent.spec.elastic import FirstStep, Place

PLACE = Place(
    round=2, rank=0, size=2, local_rank=0, local_size=1, cross_rank=0, cross_size=2, address="10.0.0.5", port=4000,
    lost=("deeplearning-worker1",), lost_ranks=(0,), why="rank 0 was killed",
)  # fmt: skip


def test_a_place_travels_as_json() -> None:
    assert Place.from_json(PLACE.to_json().encode()) == PLACE


def test_a_first_step_travels_as_json() -> None:
    first = FirstStep(round=2, step=7, steps_lost=1, seconds=1.5)
    assert FirstStep.from_json(first.to_json().encode()) == first


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b'{"round": 1, "step": -1, "steps_lost": 0, "seconds": 1}', b"x", b'{"round": true}']
)
def test_what_is_no_first_step_is_refused(text: bytes) -> None:
    with pytest.raises((TypeError, ValueError)):
        FirstStep.from_json(text)


@pytest.mark.parametrize("seconds", ["NaN", "-1", '"1"', "Infinity"])
def test_seconds_that_are_none_are_refused(seconds: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        FirstStep.from_json(f'{{"round": 1, "step": 1, "steps_lost": 0, "seconds": {seconds}}}'.encode())
