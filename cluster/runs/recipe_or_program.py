"""What a run executes: a recipe with its settings, the user's program, or a benchmark. Each is built from its flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Final

from agent.errors import ReportedError
from agent.spec.launchers import HOROVOD, TOGETHER
from agent.spec.run import UNPLACED
from cluster.errors import UsageError
from cluster.programs.user_program import Program
from cluster.runs.run_options import RankOptions
from payload.recipes.train_config import TrainConfig
from payload.settings import SettingError, Settings
from payload.settings.bench import BenchSettings

_ANY_RUN: Final = "/run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A recipe to train, and the arguments of `payload.train` that override its settings.

    Invalid arguments raise UsageError when it is created.
    """

    recipe: str = "digits"
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        run_dir = str(self.config(1).run_dir)
        if run_dir != _ANY_RUN:
            raise UsageError("--run-dir", run_dir, "is set by the task; leave it out")

    def config(self, ranks: int) -> TrainConfig:
        """Return the recipe's configuration for this number of ranks, as each rank will parse it from its arguments.

        Raises UsageError, also if the arguments do not fit the recipe's variant for these ranks, so that errors appear
        before anything is asked or spent.
        """
        try:
            return TrainConfig.from_argv(self.command(_ANY_RUN)[2:], ranks=ranks)
        except SettingError as error:
            raise UsageError(error.flag, error.value, error.rule) from None
        except ReportedError as error:
            raise UsageError("--recipe", self.recipe, str(error)) from None

    @property
    def label(self) -> str:
        """Return the label for runs of this recipe, which is part of their ids."""
        return self.recipe

    def settings(self, ranks: int) -> Settings:
        """Return the recipe's settings for this number of ranks: those of the matching variant, with `arguments`
        applied. Raises UsageError.
        """
        return self.config(ranks).settings

    def command(self, run_directory: str) -> tuple[str, ...]:
        """Return the arguments of each rank's Python interpreter. The run's files are in `run_directory`."""
        return ("-m", "payload.train", "--recipe", self.recipe, "--run-dir", run_directory, *self.arguments)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark of the cluster."""

    settings: BenchSettings

    @property
    def label(self) -> str:
        """Return the label for benchmark runs, which is part of their ids."""
        return "bench"

    def command(self, run_directory: str) -> tuple[str, ...]:
        """Return the arguments of each rank's Python interpreter. The run's files are in `run_directory`."""
        return ("-m", "payload.bench.ranks", "--run-dir", run_directory, *self.settings.arguments())


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeFlags:
    """Flags of `fab train` for a recipe, as typed. Empty flags keep the recipe's values."""

    recipe: Annotated[str, "recipe to train, from `fab recipes`; default: digits"] = ""
    epochs: Annotated[str, "epochs; default: the recipe's"] = ""
    batch_per_rank: Annotated[str, "images per step and rank; default: the recipe's"] = ""
    learning_rate: Annotated[
        str, "learning rate for the recipe's batch size, scaled with the global batch; default: the recipe's"
    ] = ""
    seed: Annotated[str, "seed of weights and shuffling; default: the recipe's"] = ""
    data_dir: Annotated[str, "directory of the data on the nodes, for recipes that need one"] = ""

    def training(self, further: Sequence[str] = ()) -> Training:
        """Return the recipe to train. The words after `--`, `further`, win over these flags. Raises UsageError."""
        flags = [word for name, text in given(self) if name != "--recipe" for word in (name, text)]
        return Training(recipe=self.recipe or Training.recipe, arguments=(*flags, *further))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramFlags:
    """Flags of `fab train` for a user program, as typed."""

    payload: Annotated[
        str, "directory of your program, to run instead of a recipe; default with --entry: the project"
    ] = ""
    entry: Annotated[
        str, "command of each rank, such as 'train.py --epochs 3'; words after -- are appended unchanged"
    ] = ""
    requirements: Annotated[
        str,
        "file that lists the packages; default: requirements.txt, uv.lock, pylock.toml or pyproject.toml in the "
        "program's directory",
    ] = ""
    extra: Annotated[str, "optional dependencies of pyproject.toml or uv.lock to install, comma-separated"] = ""
    group: Annotated[str, "dependency groups of pyproject.toml or uv.lock to install, comma-separated"] = ""
    keras: Annotated[str, "major version of Keras that the program imports as tf.keras and keras: 3, or 2"] = ""


def given(flags: RecipeFlags | ProgramFlags) -> list[tuple[str, str]]:
    """Return the names and texts of the flags that are not empty, as (--NAME, TEXT)."""
    return [(f"--{name.replace('_', '-')}", text) for name, text in dataclasses.asdict(flags).items() if text]


def read_work(
    recipe: RecipeFlags, program: ProgramFlags, further: Sequence[str], ranks: RankOptions
) -> Training | Program:
    """Return what to run: the user's program if --payload is given, else a recipe. `further` are the words after `--`.

    Raises UsageError for invalid flags, and for flags that are only for the other kind, also in `ranks`. If `ranks` has
    --placement none, a recipe gets this flag as an argument.
    """
    if not program.payload:
        if ranks.launcher not in ("", HOROVOD):
            rule = f"is for your own program, but {HOROVOD} starts the recipes; leave it out, or give --entry"
            raise UsageError("--launcher", ranks.launcher, rule)
        if ranks.together != TOGETHER[0]:
            rule = "is for your own program, but the ranks of a recipe always train together; leave it out"
            raise UsageError("--together", ranks.together, rule)
        if ranks.own_gpu:
            rule = "is for your own program, but the ranks of a recipe have a GPU each; leave it out"
            raise UsageError("--own-gpu", None, rule)
        for flag, text in given(program):
            raise UsageError(flag, text, "needs --payload DIRECTORY, the directory of your program")
        # A recipe's ranks place themselves. Their setting for that has the same name.
        unplaced = ("--placement", UNPLACED) if ranks.placement == UNPLACED else ()
        return recipe.training((*unplaced, *further))
    for flag, text in given(recipe):
        rule = "is for recipes; give arguments of your own program in --entry or after --"
        raise UsageError(flag, text, rule)
    return Program.from_arguments(
        program.payload,
        program.entry,
        further,
        requirements=program.requirements,
        keras=program.keras,
        extras=_listed(program.extra),
        groups=_listed(program.group),
    )


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
