"""The timeline of a run: phases, events and nodes over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cluster.plots.style import FAINT, SERIES, WIDTH_IN, Drawn, drawing, new_figure, page_svg
from cluster.report.shown_values import time_text
from cluster.report.timeline import CHECKPOINT, FAULT, PHASES, RESUMED, STRAGGLER, Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_NODES: Final = 24
"""Maximum number of nodes in a timeline, one per line."""
EVENT_STYLES: Final = {CHECKPOINT: ("^", 2), RESUMED: (">", 0), STRAGGLER: ("s", 3), FAULT: ("X", 1)}


def draw_timeline(timeline: Timeline) -> Drawn:
    """Draw a timeline for a wide and for a narrow screen. Nodes after the first MAX_NODES are left out.

    The text alternative has the phases and the number of faults.
    """
    faults = sum(event.kind == FAULT for event in timeline.events)
    spans = ", ".join(f"{phase.name} {time_text(phase.seconds)}" for phase in timeline.phases)
    description = f"{time_text(timeline.seconds)} on {len(timeline.nodes)} nodes: {spans}. Faults: {faults}."
    wide, narrow = (
        page_svg(_figure(timeline, width, columns), name=name, title="Timeline", description=description)
        for name, width, columns in (("timeline", 10.0, 5), ("timeline-narrow", WIDTH_IN, 2))
    )
    return Drawn(name="timeline", title="Timeline", description=description, svg=wide, narrow_svg=narrow)


def _figure(timeline: Timeline, width_in: float, columns: int) -> Figure:
    """Draw a timeline of this width, in inches, with a number of columns in its legend and at most MAX_NODES nodes."""
    nodes = timeline.nodes[:MAX_NODES]
    lanes = ["phases", "events", *(node.name for node in nodes)]
    with drawing():
        figure = new_figure(width_in, 0.5 + 0.25 * len(lanes) + 0.2 * -(-(len(PHASES) + 4) // columns))
        axes = figure.add_subplot()
        for number, name in enumerate(PHASES):
            if spans := [(phase.begin_s, phase.seconds) for phase in timeline.phases if phase.name == name]:
                axes.broken_barh(spans, (-0.31, 0.62), color=SERIES[number], label=name)
        for kind, (marker, number) in EVENT_STYLES.items():
            if times := [event.at_s for event in timeline.events if event.kind == kind]:
                axes.plot(times, [1] * len(times), linestyle="", marker=marker, ms=6, color=SERIES[number], label=kind)
        for lane, node in enumerate(nodes, 2):
            begin = timeline.seconds if node.joined_s is None else node.joined_s
            axes.barh(lane, node.left_s - begin, left=begin, height=0.5, color=FAINT, alpha=0.55)
        axes.set_yticks(range(len(lanes)), lanes)
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.set_xlim(0, timeline.seconds or 1)
        axes.xaxis.set_major_formatter(lambda seconds, _: time_text(seconds) if seconds else "0")
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=columns, columnspacing=1.2)
    return figure
