"""docs/deepcfn.md: every command beside a statement exists, with its flags, settings and recipe."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from cluster.cli import loader
from payload.recipes import RECIPES
from payload.recipes.config import TrainConfig
from stacks.config import ClusterConfig

GUIDE: Final = (Path(__file__).resolve().parents[1] / "docs" / "deepcfn.md").read_text(encoding="utf-8")
ROWS: Final = [line for line in GUIDE.splitlines() if line.startswith("| ") and not line.startswith("| statement ")]
COMMANDS: Final = sorted(set(re.findall(r"`(fab [^`]+)`", GUIDE)))
TASKS: Final = dict(loader.collection().tasks)


def faults(command: str) -> list[str]:
    """Return what of a command does not exist: its task, a flag, a recipe, a setting, a key of the configuration."""
    task, *words = shlex.split(command)[1:]
    if task not in TASKS:
        return [task]
    own = words[: words.index("--")] if "--" in words else words
    settings = words[words.index("--") + 1 :] if "--" in words else []
    known = {flag for argument in TASKS[task].get_arguments() for flag in argument_flags(argument.names)}
    found = [word for word in own if word.startswith("--") and word.split("=")[0] not in known]
    found += [pair for flag, pair in itertools.pairwise(own) if flag == "--set" and not is_key(pair)]
    if task != "train":
        return found
    recipe = own[own.index("--recipe") + 1] if "--recipe" in own else "digits"
    if recipe not in [each.name for each in RECIPES]:
        return [*found, recipe]
    data = ["--data-dir", own[own.index("--data-dir") + 1]] if "--data-dir" in own else []
    try:
        TrainConfig.from_argv(["--recipe", recipe, "--run-dir", "/run", *data, *settings])
    except (ValueError, argparse.ArgumentError) as error:
        found.append(str(error))
    return found


def argument_flags(names: tuple[str, ...]) -> list[str]:
    return [("--" if len(name) > 1 else "-") + name.replace("_", "-") for name in names]


def is_key(pair: str) -> bool:
    return pair.split("=")[0] in {field.name for field in dataclasses.fields(ClusterConfig)}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_with_its_flags(command: str) -> None:
    assert faults(command) == []


def test_every_statement_has_something_beside_it() -> None:
    assert len(ROWS) >= 30
    for row in ROWS:
        _, statement, here, _ = row.split("|")
        assert statement.strip() and here.strip(), row


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("fab trian", "trian"),
        ("fab train --ndoes 2", "--ndoes"),
        ("fab train --recipe digit", "digit"),
        ("fab train -- --no-such-setting 1", "--no-such-setting"),
        ("fab train --recipe imagenet-90", "--data-dir"),
        ("fab up --set regoin=x", "regoin"),
    ],
)
def test_a_command_that_does_not_exist_is_found(command: str, fault: str) -> None:
    assert fault in " ".join(faults(command))
