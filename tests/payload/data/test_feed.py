from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.data.dataset import Dataset
from payload.data.feed import epoch_inputs, is_augmented
from payload.training.config import TrainConfig

DATA = Dataset(
    train_images=np.zeros((23, 4, 4, 1), np.uint8),
    train_labels=np.zeros(23, np.int32),
    test_images=np.zeros((1, 4, 4, 1), np.uint8),
    test_labels=np.zeros(1, np.int32),
    classes=1,
)
DIGITS_ARGS = ["--recipe", "digits", "--run-dir", "/run"]
STILL = ["--rotation-deg", "0", "--shift-fraction", "0", "--zoom-fraction", "0"]


@settings(deadline=None)
@given(st.integers(1, 23), st.integers(1, 6))
def test_an_image_is_moved_in_the_same_way_on_any_number_of_ranks(batch: int, ranks: int) -> None:
    config = TrainConfig.from_argv(DIGITS_ARGS).settings
    moves = []
    for size in (1, ranks):
        moved = {}
        for rank in range(size):
            for given_input in epoch_inputs(config, DATA, global_batch=batch, epoch=2, rank=rank, ranks=size):
                for index, weight, move in zip(
                    given_input.indices, given_input.weights, given_input.transforms, strict=True
                ):
                    if weight:
                        moved[int(index)] = move.tobytes()
        moves.append(moved)
    assert moves[0] == moves[1]
    assert moves[0].keys() == set(range(23))


def test_without_augmentation_no_transform_is_sent() -> None:
    config = TrainConfig.from_argv([*DIGITS_ARGS, *STILL]).settings
    assert not is_augmented(config)
    (only,) = epoch_inputs(config, DATA, global_batch=23, epoch=0, rank=0, ranks=1)
    assert only.transforms.shape == (0, 8)
    assert only.batch_size == 23
