"""The task that estimates runs before they cost anything."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

from cluster.cli.process import PROJECT
from cluster.cli.task import Json, Set, task
from cluster.runs.work import RecipeFlags
from cluster.session import Session
from cluster.terminal.output import print_line, print_result

PRICE_WAIT_S = 3.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """What the run may take, as it is typed."""

    deadline: Annotated[str, "hours that the run may take; chooses the cheapest that keeps it"] = ""
    budget: Annotated[str, "USD that the run may cost; chooses the quickest that keeps it"] = ""


@task(takes_words=True, short_flags=False)
def plan(
    *,
    set_: Set = (),
    recipe: RecipeFlags,
    nodes: Annotated[str, "numbers of worker nodes to compare, with commas between"] = "1,2,4,8,16",
    instance: Annotated[
        str, "instance types to compare, with commas between; default: those of the recipe, else the cluster's"
    ] = "",
    bounds: Bounds,
    to_target: Annotated[bool, "until the accuracy that the recipe's source reached, not to the last epoch"] = False,
    plot: Annotated[str, "draw time and cost to this file, .png or .svg"] = "",
    assumptions: Annotated[bool, "show what was assumed of each type, with its source"] = False,
    json: Json = False,
) -> None:
    """
    Estimate time, cost and bottleneck of a recipe by nodes and instance types, before anything is started.

    Example: fab plan --recipe imagenet-fast --nodes 1,4,16 --instance p4d.24xlarge,p5.48xlarge --deadline 1

    Example: fab plan --recipe digits --plot plan.png -- --network vgg16
    """
    # Of no use to the other tasks.
    from cluster.planner import cluster_prices, plan_table, question
    from cluster.planner import plot as plots
    from cluster.ssh.fanout import words_after_dashes
    from cluster.terminal.tables import print_table

    session = Session(PROJECT, set_)
    picture = plots.check_path(plot) if plot else None
    asked = question.read(
        recipe,
        words_after_dashes(sys.argv),
        nodes=nodes,
        instances=instance,
        deadline=bounds.deadline,
        budget=bounds.budget,
        to_target=to_target,
        config=session.config,
        calibration=session.calibration,
    )
    prices = cluster_prices.look_up(session, asked.types, wait_s=PRICE_WAIT_S)
    answer = asked.answer(prices.by_type)
    if picture:
        title = f"{asked.title}: cost over time, by type and number of nodes"
        plots.save(plots.draw_candidates(answer.candidates, answer.choice.candidate, title), picture)
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
        print_line(f"drawn to {picture}")
