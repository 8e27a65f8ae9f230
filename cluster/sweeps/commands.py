"""The commands and specs of a sweep's runs, from its plan and the flags of `fab train`."""

from __future__ import annotations

import dataclasses
import datetime
import re
import shlex
import typing
from collections.abc import Callable, Sequence
from typing import Final

from agent.spec.nodes import Node, choose_hosts, common_network, meeting_interface
from agent.spec.run import TRAINING, RunSpec
from agent.spec.run_id import make_run_id
from agent.spec.sweep_trial import SEED_VARIABLE, Trial
from cluster.errors import UsageError
from cluster.programs.entry_flag import split_entry
from cluster.programs.user_program import Program
from cluster.runs.recipe_or_program import ProgramFlags, RecipeFlags, Training
from cluster.sweeps.plan import NODES, RUN_DIRECTORY, SEED, Plan, check_placeholders, expand, values_of
from payload.settings import Settings

MAX_CHECKED: Final = 200
_SWITCHES: Final = frozenset(name for name, kind in typing.get_type_hints(Settings).items() if kind is bool)
_SWITCH: Final = re.compile(r"--([a-z0-9-]+)=(?:(true|yes|on|1)|(?:false|no|off|0))", re.IGNORECASE)


def with_recipe_command(plan: Plan, base: Training, recipe: RecipeFlags) -> Plan:
    """Return the plan with the command of a recipe. Each parameter except `nodes` is one of the recipe's settings.

    Underscores in their names become hyphens. `base` is the recipe, `recipe` are its flags. The first repeat has the
    recipe's seed. Raises UsageError for an invalid value of a parameter, or for a parameter that is also a flag. Each
    value is checked, but of many combinations only some.
    """
    parameters = tuple(dataclasses.replace(each, name=each.name.replace("_", "-")) for each in plan.parameters)
    names = [each.name for each in parameters if each.name != NODES]
    flags = {name.replace("_", "-"): text for name, text in dataclasses.asdict(recipe).items() if text}
    if twice := next((name for name in names if name in flags), ""):
        raise UsageError(f"--{twice}", flags[twice], f"is given with --grid {twice} too; give it once")
    if "recipe" in names:
        raise UsageError("--grid", "recipe", "is not a setting of a recipe; start a sweep for each recipe")
    seed = () if SEED in names else (f"--{SEED}={{{SEED}}}",)
    words = (*base.command(f"{{{RUN_DIRECTORY}}}"), *seed, *(f"--{name}={{{name}}}" for name in names))
    found = dataclasses.replace(plan, parameters=parameters, command=words, seed=base.settings(1).seed)
    trials, seen = found.trials()[: found.count // found.repeats], set[tuple[str, str]]()
    for index, trial in enumerate(trials):  # each takes milliseconds: each value once, and some combinations
        if not seen.issuperset(trial.parameters) or index % (1 + len(trials) // MAX_CHECKED) == 0:
            seen |= set(trial.parameters)
            training_of(found, trial, base)
    return found


def training_of(plan: Plan, trial: Trial, base: Training) -> Training:
    """Return the recipe `base` with the settings of one run of a sweep.

    `plan` is the result of `with_recipe_command`. Raises UsageError for an invalid value.
    """
    at = len(base.command("")) - len(base.arguments)
    return dataclasses.replace(base, arguments=command_of(plan, trial, "")[at:])


def with_program_command(
    plan: Plan, flags: ProgramFlags, further: Sequence[str], read: Callable[[ProgramFlags, Sequence[str]], Program]
) -> tuple[Plan, Program]:
    """Return the plan with the command of a program, and the program with the values of the first combination.

    `further` are the words after `--`. `read` builds a program from its flags and these words. Raises UsageError for an
    unknown placeholder, an unused parameter, or a script that is not uploaded.
    """
    words = split_entry(flags.entry)
    check_placeholders([*words, *further], [each.name for each in plan.parameters])
    values = values_of(plan.trials()[0], "")
    program = read(dataclasses.replace(flags, entry=shlex.join(expand(words, values))), expand(further, values))
    # The program may have another path for its script than was typed.
    typed = [*words, *further]
    located = zip(typed, expand(typed, values), program.entry, strict=True)
    found = dataclasses.replace(plan, command=tuple(word if first == now else now for word, first, now in located))
    scripts = dict[tuple[str, ...], tuple[str, ...]]()
    for pairs in found.combinations():
        command = expand(found.command, dict(pairs))
        scripts.setdefault(tuple(word for word in command if word.endswith(".py")), command)
    for command in scripts.values():
        dataclasses.replace(program, entry=command)
    return found, program


def command_of(plan: Plan, trial: Trial, run_directory: str) -> tuple[str, ...]:
    """Return the command of one run's ranks: the plan's, with the run's directory and the values of its parameters.

    In a recipe's command, a setting that is on or off becomes --NAME or --no-NAME.
    """
    words = expand(plan.command, values_of(trial, run_directory))
    return tuple(map(_switch, words)) if words[:2] == TRAINING else words


def _switch(word: str) -> str:
    """Return --NAME for `--NAME=true` of a switch of recipes, --no-NAME for false; any other word unchanged."""
    found = _SWITCH.fullmatch(word)
    if not found or found[1].replace("-", "_") not in _SWITCHES:
        return word
    return f"--{found[1]}" if found[2] else f"--no-{found[1]}"


def specs_of(
    plan: Plan, trials: Sequence[Trial], base: RunSpec, *, now: datetime.datetime, token: str
) -> list[RunSpec]:
    """Return a spec for each trial, made from `base`, the spec of the sweep's largest run.

    Each has its trial's number of nodes, command and seed. The specs' ids sort in the order of the trials. `now` and
    `token` are parts of the ids. Only the first spec has the plan.
    """
    ids = [make_run_id(now, f"{base.recipe}-{token}", f"{place:04x}") for place in range(1, len(trials) + 1)]
    others = tuple(pair for pair in base.environment if pair[0] != SEED_VARIABLE)
    return [
        dataclasses.replace(
            base,
            run_id=run_id,
            hosts=base.hosts[: plan.nodes_of(trial)],
            command=command_of(plan, trial, f"{base.runs_root}/{run_id}"),
            environment=others if trial.seed is None else (*others, (SEED_VARIABLE, str(trial.seed))),
            # One run has the plan, which may be long.
            trial=dataclasses.replace(trial, first=ids[0], plan=trial.plan if run_id == ids[0] else ""),
        )
        for run_id, trial in zip(ids, trials, strict=True)
    ]


def renewed(plan: Plan, spec: RunSpec, nodes: Sequence[Node], *, agent: str) -> RunSpec:
    """Return a spec for `specs_of`: that of an earlier run of a sweep, with the present nodes.

    It has as many nodes as the sweep's largest run. `agent` is the agent's tree, as pushed by the current version. A
    recipe keeps the tree that it was launched with. Raises SpecError if there are too few nodes.
    """
    hosts = choose_hosts(nodes, plan.max_nodes)
    if spec.ranks_per_node:
        hosts = tuple(dataclasses.replace(host, slots=spec.ranks_per_node) for host in hosts)
    return dataclasses.replace(
        spec,
        agent=agent if spec.program else spec.agent,
        hosts=hosts,
        interface=meeting_interface(nodes),
        network=common_network(nodes),
    )
