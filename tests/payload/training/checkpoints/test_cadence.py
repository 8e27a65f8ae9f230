from __future__ import annotations

from payload.training.checkpoints.cadence import Cadence


def test_epochs_end_with_a_checkpoint_at_their_distance_and_at_the_end() -> None:
    cadence = Cadence(epochs=3, last_epoch=8)
    assert [epoch for epoch in range(1, 9) if cadence.after_epoch(epoch, epoch / 10)] == [3, 6, 8]


def test_an_epoch_better_than_all_before_ends_with_one_where_the_best_is_kept() -> None:
    cadence = Cadence(epochs=100, last_epoch=100, keep_best=True, best=0.5)
    accuracies = (0.4, 0.6, 0.6, 0.55, 0.7)
    assert [cadence.after_epoch(epoch, accuracy) for epoch, accuracy in enumerate(accuracies, 1)] == [
        *(False, True, False, False, True)
    ]


def test_minutes_count_from_the_last_checkpoint() -> None:
    now = 1000.0
    cadence = Cadence(epochs=1, last_epoch=1, minutes=2, clock=lambda: now)
    now += 119
    assert not cadence.within_epoch()
    now += 1
    assert cadence.within_epoch()
    cadence.saved()
    assert not cadence.within_epoch()
    now += 120
    assert cadence.within_epoch()


def test_without_minutes_no_epoch_is_interrupted() -> None:
    now = 0.0
    cadence = Cadence(epochs=1, last_epoch=1, clock=lambda: now)
    now += 1e9
    assert not cadence.within_epoch()
