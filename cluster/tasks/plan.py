"""The task that estimates runs before they cost anything."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated, Final

from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, task
from cluster.runs.recipe_or_program import RecipeFlags
from cluster.session import Session
from cluster.terminal.output import print_line, print_result

PRICE_WAIT_S: Final = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanLimits:
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
    bounds: PlanLimits,
    to_target: Annotated[
        bool, "estimate until the accuracy that the recipe's source reached, not until the last epoch"
    ] = False,
    plot: Annotated[str, "write a picture of time and cost to this file, .png or .svg"] = "",
    assumptions: Annotated[bool, "show the assumptions for each type, with their sources"] = False,
    json: Json = False,
    key: Key = "",
) -> None:
    """
    Estimate time, cost and bottleneck of a recipe for several node counts and instance types, without starting it.

    Example: fab plan --recipe imagenet-fast --nodes 1,4,16 --instance p4d.24xlarge,p5.48xlarge --deadline 1

    Example: fab plan --recipe digits --plot plan.png -- --network vgg16

    """
    # Other tasks do not need these modules.
    from cluster.cli.flags import words_after_dashes
    from cluster.planner import cluster_prices, plan_request, plan_table
    from cluster.plots import plan as plots
    from cluster.plots.style import save
    from cluster.terminal.tables import print_table

    session = Session(PROJECT, set_, key=key)
    picture = plots.check_path(plot) if plot else None
    asked = plan_request.read(
        recipe,
        words_after_dashes(sys.argv),
        nodes=nodes,
        instances=instance,
        deadline=bounds.deadline,
        budget=bounds.budget,
        to_target=to_target,
        config=session.config,
    )
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
