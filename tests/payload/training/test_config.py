from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.errors import PayloadError
from payload.training.config import TrainConfig, TrainConfigError
from payload.training.recipes import DIGITS

DIGITS_ARGS = ["--recipe", "digits", "--run-dir", "/runs/a"]


def test_values_not_given_come_from_the_recipe() -> None:
    config = TrainConfig.from_argv(DIGITS_ARGS)
    assert config.recipe is DIGITS
    assert config.epochs == DIGITS.epochs
    assert config.learning_rate == DIGITS.learning_rate
    assert config.run_dir == Path("/runs/a")
    assert not config.resume


def test_a_flag_overrides_the_recipe() -> None:
    config = TrainConfig.from_argv(
        [*DIGITS_ARGS, "--epochs", "3", "--learning-rate=0.5", "--resume", "--zoom-fraction", "0"]
    )
    assert (config.epochs, config.learning_rate, config.resume, config.zoom_fraction) == (3, 0.5, True, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "digit", "--run-dir", "/r"], r"--recipe digit: unknown; did you mean digits\?"),
        ([*DIGITS_ARGS, "--epoch", "3"], r"argument --epoch: unknown; did you mean --epochs\?"),
        ([*DIGITS_ARGS, "--learnin-rate=3"], r"did you mean --learning-rate\?"),
        ([*DIGITS_ARGS, "--frobnicate"], r"argument --frobnicate: unknown\. Known: --batch-per-rank"),
        ([*DIGITS_ARGS, "--epochs", "three"], r"^--epochs: must be a whole number, not 'three'$"),
        ([*DIGITS_ARGS, "--epochs"], r"^--epochs: expected one argument$"),
        ([*DIGITS_ARGS, "--epochs", "0"], r"--epochs 0: must be 1 to 100000"),
        ([*DIGITS_ARGS, "--learning-rate", "nan"], r"^--learning-rate: must be a number, not 'nan'$"),
        ([*DIGITS_ARGS, "--learning-rate", "-1"], r"--learning-rate"),
        ([*DIGITS_ARGS, "--global-batch", "8", "--batch-per-rank", "8"], r"not both"),
        ([*DIGITS_ARGS, "--data-dir", "/d"], r"--data-dir /d: recipe digits brings its own data"),
        (["--recipe", "fashion-mnist", "--run-dir", "/r"], r"--data-dir: recipe fashion-mnist needs"),
        (["--recipe", "digits"], r"--run-dir"),
        ([], r"--recipe"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_right(arguments: list[str], message: str) -> None:
    with pytest.raises(TrainConfigError, match=message) as caught:
        TrainConfig.from_argv(arguments)
    assert isinstance(caught.value, PayloadError)
    assert "\n" not in str(caught.value)


def test_the_global_batch_grows_with_the_ranks_up_to_the_recipes_limit() -> None:
    config = TrainConfig.from_argv(DIGITS_ARGS)
    assert [config.global_batch_for(ranks) for ranks in (1, 2, 8, 16)] == [32, 64, 128, 128]


def test_a_batch_that_was_given_knows_no_limit() -> None:
    assert TrainConfig.from_argv([*DIGITS_ARGS, "--batch-per-rank", "32"]).global_batch_for(16) == 512
    assert TrainConfig.from_argv([*DIGITS_ARGS, "--global-batch", "100"]).global_batch_for(16) == 100


@given(st.integers(1, 10_000), st.integers(1, 8))
def test_the_learning_rate_is_proportional_to_the_global_batch(batch: int, factor: int) -> None:
    config = TrainConfig.from_argv(DIGITS_ARGS)
    assert config.peak_learning_rate(batch * factor) == pytest.approx(factor * config.peak_learning_rate(batch))
    assert config.peak_learning_rate(config.recipe.base_batch) == config.learning_rate
