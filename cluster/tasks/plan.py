"""The task that estimates runs before they cost anything."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Final

from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.errors import UsageError
from cluster.runs.work import RecipeFlags
from cluster.session import Session
from cluster.terminal.output import print_line, print_result, progress_printer
from payload.settings import SettingError

if TYPE_CHECKING:
    from cluster.planner.hardware import Hardware
    from cluster.planner.question import Question

PRICE_WAIT_S: Final = 3.0
TASK: Final = "fab plan --calibrate"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits on the run, as typed."""

    deadline: Annotated[str, "maximum hours for the run; chooses the cheapest candidate that meets it"] = ""
    budget: Annotated[str, "maximum cost of the run in USD; chooses the fastest candidate that meets it"] = ""


@task(takes_words=True, short_flags=False)
def plan(
    *,
    set_: Set = (),
    recipe: RecipeFlags,
    nodes: Annotated[str, "numbers of worker nodes to compare, comma-separated"] = "1,2,4,8,16",
    instance: Annotated[
        str, "instance types to compare, comma-separated; default: the recipe's types, or the cluster's"
    ] = "",
    bounds: Bounds,
    to_target: Annotated[
        bool, "estimate until the accuracy that the recipe's source reached, not until the last epoch"
    ] = False,
    plot: Annotated[str, "write a picture of time and cost to this file, .png or .svg"] = "",
    assumptions: Annotated[bool, "show the assumptions for each type, with their sources"] = False,
    calibrate: Annotated[
        bool, "first measure the recipe's network, and the link between nodes, on the cluster's workers (two minutes)"
    ] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Estimate time, cost and bottleneck of a recipe for several node counts and instance types, without starting it.

    Example: fab plan --recipe imagenet-fast --nodes 1,4,16 --instance p4d.24xlarge,p5.48xlarge --deadline 1

    Example: fab plan --recipe digits --plot plan.png -- --network vgg16

    Example: fab plan --recipe benchmark --calibrate --assumptions -- --network resnet50
    """
    # Other tasks do not need these modules.
    from cluster.planner import cluster_prices, plan_table, question
    from cluster.plots import plan as plots
    from cluster.plots.style import save
    from cluster.ssh.fanout import words_after_dashes
    from cluster.terminal.tables import print_table

    session = Session(PROJECT, set_, key=key)
    picture = plots.check_path(plot) if plot else None
    kinds = ",".join(session.config.worker_types)
    asked = question.read(
        recipe,
        words_after_dashes(sys.argv),
        nodes=nodes,
        instances=instance or (kinds if calibrate else ""),
        deadline=bounds.deadline,
        budget=bounds.budget,
        to_target=to_target,
        config=session.config,
    )
    if calibrate:
        asked.check()  # a measurement costs money, so invalid questions are rejected first
        _calibrate(session, asked, yes=yes, json=json)
    asked = dataclasses.replace(asked, calibration=session.calibration)
    prices = cluster_prices.look_up(session, asked.types, wait_s=PRICE_WAIT_S)
    answer = asked.answer(prices.by_type)
    if picture:
        title = f"{asked.title}: cost over time, by type and number of nodes"
        save(plots.draw_candidates(answer.candidates, answer.choice.candidate, title), picture)
    if json:
        print_result({**answer.document(), "prices": prices.document(), "plot": plot or None}, json=True)
        return
    footer = (*prices.sentences, *answer.cautions)
    print_table(plan_table.candidate_table(answer.candidates, answer.choice, title=asked.title, footer=footer))
    if assumptions:
        for name, assumed in answer.assumptions.items():
            print_line("")
            print_table(plan_table.assumption_table(name, assumed))
    print_line(plan_table.choice_sentence(answer.choice))
    if picture:
        print_line(f"written: {picture}")


def _calibrate(session: Session, asked: Question, *, yes: bool, json: bool) -> None:
    """Benchmark the recipe's network and the link on the cluster's workers, and fetch the results for later plans.

    Asks before nodes are added. Raises UsageError if the workers have several types, a type that is not compared, or do
    not suit the recipe.
    """
    from cluster.planner.workload import probe_settings
    from cluster.report.run_files import RUNS
    from cluster.runs.archive import fetch_run
    from cluster.runs.run_options import PreflightOptions
    from cluster.tasks.bench import measure
    from cluster.tasks.launch import Following

    workers = session.load_inventory().workers
    hardware = _measured_type(asked, {each.type for each in workers} or set(session.config.worker_types))
    ranks = max(1, len(workers)) * hardware.ranks
    try:
        settings = probe_settings(asked.workload(ranks), workers=len(workers), ranks=ranks)
    except SettingError as error:
        raise UsageError(error.flag, error.value, f"{error.rule}; --calibrate cannot measure it") from None
    except UsageError as error:  # the compared nodes may be fewer than the workers
        raise UsageError("--calibrate", None, f"measures all {len(workers)} workers, but {error.rule}") from None
    progress = progress_printer(json=json)
    run_id = measure(
        session, settings, queue=False, preflight=PreflightOptions(), yes=yes, following=Following(json=json), task=TASK
    )
    progress(f"measured: {fetch_run(session, run_id, RUNS).directory}")


def _measured_type(asked: Question, theirs: Collection[str]) -> Hardware:
    """Return the workers' type, as one of those that the plan compares. `theirs` are the types of the workers.

    Raises UsageError if the workers have several types, or a type that is not compared.
    """
    names = ", ".join(sorted(theirs))
    if len(theirs) > 1:  # A measured speed applies to one type, so workers of several types cannot be calibrated.
        raise UsageError(
            "--calibrate", None, f"measures workers of one type, but this cluster has {names}; leave it out"
        )
    for kind in asked.types:
        if kind.instance_type in theirs:
            return kind
    rule = f"does not include {names}, the type of the workers that --calibrate measures; add this type"
    raise UsageError("--instance", ",".join(kind.instance_type for kind in asked.types), rule)
