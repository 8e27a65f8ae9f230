"""The commands of a sweep's runs: settings of a recipe, or arguments of a program."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.spec.sweep_trial import SEED_VARIABLE
from cluster.errors import UsageError
from cluster.programs.user_program import Program
from cluster.runs.recipe_or_program import ProgramFlags, RecipeFlags, Training
from cluster.sweeps.commands import (
    command_of,
    renewed,
    specs_of,
    training_of,
    with_program_command,
    with_recipe_command,
)
from cluster.sweeps.plan import Plan
from tests.cluster.sweeps.test_plan import plan
from tests.factories import make_master, make_nodes, make_program_spec, make_spec

NOW = datetime.datetime(2026, 11, 20, 12, 13, 14)


def recipe(*grid: str, flags: RecipeFlags | None = None, repeats: int = 1) -> tuple[Plan, Training]:
    flags = flags or RecipeFlags()
    return with_recipe_command(plan(*grid, repeats=repeats), base := flags.training(), flags), base


def test_parameters_of_a_recipe_are_its_settings() -> None:
    found, base = recipe("augmented_epochs=0,5", "flip=yes,no", flags=RecipeFlags(epochs="2", seed="5"), repeats=2)
    first, last = found.trials()[0], found.trials()[-1]
    words = ("-m", "payload.train", "--recipe", "digits", "--run-dir", "/r", "--epochs", "2", "--seed", "5")
    assert command_of(found, first, "/r") == (*words, "--seed=5", "--augmented-epochs=0", "--flip")
    assert command_of(found, last, "/r")[-3:] == ("--seed=6", "--augmented-epochs=5", "--no-flip")
    settings = training_of(found, last, base).settings(1)
    assert (settings.augmented_epochs, settings.flip, settings.seed, settings.epochs) == (5, False, 6, 2)


@pytest.mark.parametrize(
    ("grid", "rule"),
    [
        ("learning-rate=0.1,x", "--learning-rate.*must be a number"),
        ("learning-rat=0.1", "did you mean --learning-rate"),
        ("epochs=1,2", "is given with --grid epochs too"),
        ("flip=maybe", "--flip"),
        ("recipe=digits,benchmark", "start a sweep for each recipe"),
    ],
)
def test_invalid_values_of_a_recipe_are_found_before_anything_starts(grid: str, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        recipe(grid, flags=RecipeFlags(epochs="3"))


def test_one_setting_of_a_recipe_with_two_spellings_is_given_twice() -> None:
    with pytest.raises(UsageError, match="is given twice"):
        recipe("learning_rate=0.1", "learning-rate=0.2")


def program(found: Plan, entry: str, folder: Path, further: Sequence[str] = ()) -> tuple[Plan, Program]:
    def read(flags: ProgramFlags, words: Sequence[str]) -> Program:
        return Program.from_arguments(flags.payload, flags.entry, words)

    return with_program_command(found, ProgramFlags(payload=str(folder), entry=entry), further, read)


def test_values_are_words_of_a_program_and_never_a_shells(tmp_path: Path) -> None:
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text("print()\n")
    found, first = program(plan('x="a b; rm -rf /",$(id)'), "train.py --x {x}", tmp_path, ["{seed}", "{rank}"])
    assert [command_of(found, trial, "/r") for trial in found.trials()] == [
        ("train.py", "--x", "a b; rm -rf /", "1", "{rank}"), ("train.py", "--x", "$(id)", "1", "{rank}"),
    ]  # fmt: skip
    assert first.entry == ("train.py", "--x", "a b; rm -rf /", "1", "{rank}")
    scripts, _ = program(plan("name=train,other"), "{name}.py", tmp_path)
    assert [command_of(scripts, trial, "/r") for trial in scripts.trials()] == [("train.py",), ("other.py",)]
    with pytest.raises(UsageError, match=r"absent.py.* is not a file"):
        program(plan("name=train,absent"), "{name}.py", tmp_path)
    with pytest.raises(UsageError, match="only a shell interprets"):
        program(plan("x=1"), "train.py {x} > log", tmp_path)


def test_runs_of_a_sweep_differ_in_command_seed_and_nodes_only(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()\n")
    found, _ = program(plan("x=1,2", nodes="1,2"), "train.py {x}", tmp_path)
    base = make_program_spec(hosts=make_nodes(2), environment=(("A", "b"),), recipe="train")
    specs = specs_of(found, found.trials("s"), base, now=NOW, token="beef")
    assert [spec.run_id for spec in specs] == [f"20261120-121314-train-beef-000{n}" for n in (1, 2, 3, 4)]
    later = specs_of(found, found.trials("s")[2:], base, now=NOW, token="beef")  # as for --resume
    assert [(spec.run_id[-4:], spec.trial.number) for spec in later] == [("0001", 3), ("0002", 4)]
    assert [len(spec.hosts) for spec in specs] == [1, 2, 1, 2]
    assert specs[3].environment == (("A", "b"), (SEED_VARIABLE, "1"))
    assert {spec.trial.first for spec in specs} == {specs[0].run_id}
    assert [bool(spec.trial.plan) for spec in specs] == [True, False, False, False]
    assert {(spec.agent, spec.program, spec.network, spec.bounds) for spec in specs} == {
        (base.agent, base.program, base.network, base.bounds)
    }


def test_resumed_sweep_runs_the_same_code_on_the_present_nodes() -> None:
    nodes = (make_master(), *make_nodes(3, instance_id="i-0000aaaa"))
    spec = renewed(plan("x=1,2", nodes="2"), make_spec(ranks_per_node=4), nodes, agent="b" * 16)
    assert [(host.instance_id, host.slots) for host in spec.hosts] == [("i-0000aaaa", 4)] * 2
    assert (spec.agent, spec.payload) == (make_spec().agent, make_spec().payload)
    assert renewed(plan("x=1"), make_program_spec(), nodes, agent="b" * 16).agent == "b" * 16
