"""Draws that a seed repeats."""

from __future__ import annotations

from localcloud.manners.draws import Draws


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    def ten(seed: int) -> list[float]:
        draws = Draws(seed)
        return [draws.draw("boot").random() for _ in range(10)]

    assert ten(7) == ten(7)
    assert ten(7) != ten(8)
    assert len(set(ten(7))) == 10


def test_draws_of_one_concern_do_not_shift_those_of_another() -> None:
    alone, beside = Draws(7), Draws(7)
    for _ in range(100):
        beside.draw("throttling").random()
    assert alone.draw("boot").random() == beside.draw("boot").random()


def test_draws_do_not_change_between_versions_of_python() -> None:
    assert round(Draws(7).draw("boot").random(), 6) == 0.816969
