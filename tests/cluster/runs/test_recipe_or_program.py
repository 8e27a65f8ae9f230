"""The work of a run: a recipe's flags reach the ranks unchanged, and invalid flags are rejected on the laptop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.spec.run import RunSpec
from cluster.errors import UsageError
from cluster.planner.run_estimate import estimate_run
from cluster.runs.recipe_or_program import Benchmark, ProgramFlags, RecipeFlags, Training, read_work
from cluster.runs.run_options import RankOptions
from payload.recipes.train_config import TrainConfig
from payload.settings.bench import BenchConfig, BenchSettings
from stacks.config import ClusterConfig
from tests.cluster.runs.test_run_spec import make_launch
from tests.words import LONG, WORDS


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("epochs", "0", "--epochs"),
        ("epochs", "many", "epochs"),
        ("batch_per_rank", "-4", "--batch-per-rank"),
        ("learning_rate", "nan", "learning-rate"),
        ("seed", "x", "seed"),
        ("recipe", "digit", "did you mean digits"),
    ],
)
def test_invalid_settings_are_rejected_before_any_question(field: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        RecipeFlags(**{field: value}).training()


@pytest.mark.parametrize("further", [("--run-dir", "/mnt/efs/runs/other"), ("--run-dir=/mnt/efs/runs/other",)])
def test_run_cannot_be_sent_to_the_directory_of_another(further: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"--run-dir = '/mnt/efs/runs/other': is set by the task"):
        Training(arguments=further)


@pytest.mark.parametrize(
    ("payload", "entry", "further", "recipe", "says"),
    [
        ("", "train.py", (), {}, "--entry = 'train.py': needs --payload"),
        (".", "train.py", (), {"batch_per_rank": "8"}, "--batch-per-rank = '8': is for recipes"),
        (".", "train.py", (), {"recipe": "digits"}, "--recipe = 'digits': is for recipes"),
    ],
)
def test_recipe_and_program_cannot_be_combined(
    payload: str, entry: str, further: tuple[str, ...], recipe: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_work(RecipeFlags(**recipe), ProgramFlags(payload=payload, entry=entry), further, RankOptions())


def test_arguments_after_double_dash_are_recipe_settings() -> None:
    work = read_work(RecipeFlags(seed="5"), ProgramFlags(), ("--xla", "--seed", "7"), RankOptions())
    assert work == Training(arguments=("--seed", "5", "--xla", "--seed", "7"))
    assert work.command("/r")[-5:] == ("--seed", "5", "--xla", "--seed", "7")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--xlaa",), "argument = '--xlaa': unknown; did you mean --xla?"),
        (("--precision", "float8"), "--precision = 'float8': must be one of"),
        (("8",), "argument = '8': unknown"),
    ],
)
def test_invalid_settings_after_the_dashes_are_rejected_at_no_cost(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        read_work(RecipeFlags(), ProgramFlags(), words, RankOptions())


@example(data_dir="0/", further=[])
@given(data_dir=WORDS | st.just(LONG), further=st.lists(WORDS, max_size=2))
def test_recipe_arguments_reach_ranks_unchanged_or_are_rejected(data_dir: str, further: list[str]) -> None:
    try:
        flags = RecipeFlags(recipe="imagenet-fast", data_dir=data_dir)
        work = flags.training(further)
    except UsageError:
        return
    command = RunSpec.from_json(make_launch(training=work).to_json()).command
    assert command[6:] == (*(("--data-dir", data_dir) if data_dir else ()), *further)
    assert not data_dir or TrainConfig.from_argv(command[2:]).data_dir == data_dir


def test_recipes_are_started_by_horovod_with_all_gpus_shown() -> None:
    with pytest.raises(UsageError, match="--launcher = 'plain': is for your own program"):
        read_work(RecipeFlags(), ProgramFlags(), (), RankOptions(launcher="plain"))
    with pytest.raises(UsageError, match="--own-gpu: is for your own program"):
        read_work(RecipeFlags(), ProgramFlags(), (), RankOptions(own_gpu=True))


def test_placement_none_is_passed_to_a_recipe_and_can_be_overridden() -> None:
    unplaced = RankOptions(placement="none")
    assert read_work(RecipeFlags(), ProgramFlags(), (), unplaced) == Training(arguments=("--placement", "none"))
    given = read_work(RecipeFlags(), ProgramFlags(), ("--placement", "auto"), unplaced)
    assert given == Training(arguments=("--placement", "none", "--placement", "auto"))


def test_settings_are_those_of_the_variant_for_number_of_ranks() -> None:
    training = Training(recipe="imagenet-fast", arguments=("--data-dir", "/d", "--seed", "7"))
    few, many = training.settings(8), training.settings(128)
    assert (few.epochs, many.epochs) == (28, 50)
    assert few.seed == many.seed == 7


def test_settings_that_only_the_variant_for_few_ranks_allows_are_rejected_for_many() -> None:
    rates = "0-7:1..2,7-28:2..0"
    training = Training(recipe="imagenet-fast", arguments=("--data-dir", "/d", "--rate-phases", rates))
    assert training.settings(8).rate_phases == rates
    with pytest.raises(UsageError, match=f"--rate-phases = '{rates}': ends at epoch 28, but the run has 30"):
        training.settings(32)
    with pytest.raises(UsageError, match="ends at epoch 28"):
        estimate_run(training.settings, "p3.16xlarge", 4, ClusterConfig(), nodes_are_up=True, usd_per_hour=None)


def test_benchmark_reaches_ranks_as_requested() -> None:
    settings = BenchSettings(nodes=(1, 4), networks=("vgg16",), batch_sizes=(1, 64), image_size=64, repeats=3)
    first, module, *arguments = Benchmark(settings=settings).command("/mnt/efs/runs/one")
    assert (first, module) == ("-m", "payload.bench.ranks")
    assert BenchConfig.from_argv(arguments) == BenchConfig(settings=settings, run_dir=Path("/mnt/efs/runs/one"))
