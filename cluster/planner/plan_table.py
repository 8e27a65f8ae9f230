"""The candidates and the assumptions as tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from cluster.planner.assumptions import Assumptions
from cluster.planner.candidates import Candidate, Choice
from cluster.planner.figure import Range
from cluster.terminal.tables import Table
from cluster.terminal.units import duration

WORDS = {
    "images_s": "images/s of one rank",
    "evaluation_speed": "images evaluated in the time of training one image",
    "decode_images_s": "images/s that one vCPU decodes",
    "between_bytes_s": "bytes/s between nodes",
    "between_hop_s": "latency between nodes, s",
    "within_bytes_s": "bytes/s within a node",
    "within_hop_s": "latency within a node, s",
    "start_up_s": "start-up, s",
}
"""Description of each figure of `Assumptions`."""


def candidate_table(candidates: Sequence[Candidate], choice: Choice, *, title: str, footer: Sequence[str]) -> Table:
    """Build the table of candidates. The chosen candidate is marked with *. `footer` are lines below the table."""
    return Table(
        title=title,
        columns=("", "nodes", "type", "time", "range", "on demand", "range", "spot", "bottleneck", "frontier"),
        rows=tuple(_row(each, chosen=each == choice.candidate) for each in candidates),
        footer=tuple(footer),
        expendable=("frontier", "spot"),
    )


def _row(candidate: Candidate, *, chosen: bool) -> tuple[str, ...]:
    """Build a candidate's row: time and cost with ranges, spot cost, bottleneck with its share, and "yes" on the
    frontier.

    `chosen` marks the recommended candidate.
    """
    seconds, usd, spot = candidate.seconds, candidate.usd, candidate.spot_usd
    parts = dataclasses.asdict(candidate.parts)
    bottleneck = candidate.parts.bottleneck
    share = parts[bottleneck.replace("-", "_")] / candidate.parts.total
    return (
        "*" if chosen else "",
        str(candidate.nodes),
        candidate.instance_type,
        duration(seconds.value),
        f"{duration(seconds.low)} to {duration(seconds.high)}",
        _money(usd),
        f"{usd.low:,.2f} to {usd.high:,.2f}" if usd else "",
        _money(spot),
        f"{bottleneck} {share:.0%}",
        "yes" if candidate.on_frontier else "",
    )


def _money(usd: Range | None) -> str:
    return "unknown" if usd is None else f"${usd.value:,.2f}"


def choice_sentence(choice: Choice) -> str:
    """Describe the recommended candidate and the reason. If no candidate meets the limits, return only the reason."""
    if choice.candidate is None:
        return choice.reason
    chosen = choice.candidate
    price = f", {_money(chosen.usd)}" if chosen.usd else ""
    what = f"{chosen.nodes} x {chosen.instance_type}: {duration(chosen.seconds.value)}{price}"
    return f"{what}, because {choice.reason}"


def assumption_table(instance_type: str, assumed: Assumptions) -> Table:
    """Build the table of the assumptions about one instance type: value, range, evidence and source of each."""
    rows = []
    for name, words in WORDS.items():
        figure = assumed.figure(name)
        spread = f"{figure.low:.4g} to {figure.high:.4g}" if figure.low < figure.high else ""
        rows.append((words, f"{figure.value:.4g}", spread, figure.evidence, figure.source))
    return Table(
        title=f"assumptions for {instance_type}",
        columns=("figure", "value", "range", "", "source"),
        rows=tuple(rows),
        expendable=("source",),
    )
