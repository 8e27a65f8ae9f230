"""The plot of a timeline."""

from __future__ import annotations

import dataclasses
import re

from cluster.plots.timeline import draw_timeline
from tests.cluster.report.recorded_runs import raw, report


def test_timeline_has_a_line_for_each_node_up_to_a_limit() -> None:
    timeline = report().timeline
    nodes = tuple(dataclasses.replace(timeline.nodes[0], name=f"n{k}") for k in range(99))
    drawn = draw_timeline(dataclasses.replace(timeline, nodes=nodes))
    assert len(re.findall(r">n\d+</text>", drawn.svg)) == len(re.findall(r">n\d+</text>", drawn.narrow_svg)) == 24


def test_description_of_timeline_has_the_phases() -> None:
    took = raw()["state"]["updated"] - raw()["state"]["started"]
    drawn = draw_timeline(report().timeline)
    assert drawn.description.startswith(f"{took:.0f} s on 2 nodes: preparing the nodes")
    assert drawn.description.endswith(" Faults: 0.")
