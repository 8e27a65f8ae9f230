"""Draw docs/plan-scaling.png and print the table beside it: how far three networks scale, by the planner's model.

python -m tools.scaling_picture
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cluster.planner.hardware import hardware_of
from cluster.planner.plot import SETTINGS, save
from cluster.planner.sweep import Links, Point, stops_at, sweep
from cluster.report.palette import LIGHT, MARKERS

PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "plan-scaling.png"
NETWORKS: Final = ("resnet50", "inception-v3", "vgg16")
CASES: Final = (
    ("p3.16xlarge, TCP", "p3.16xlarge", False),
    ("p4d.24xlarge, EFA", "p4d.24xlarge", True),
)
"""Title, instance type, and whether over EFA; gradients in half precision."""
SHOWN: Final = (8, 16, 64, 256, 1024)


def swept(instance_type: str, network: str, *, efa: bool, hierarchical: bool) -> tuple[Point, ...]:
    """Return the sweep of one case."""
    links = Links(gradient_bytes=2, efa=efa, hierarchical=hierarchical)
    return sweep(network, hardware_of(instance_type), links)


def rows() -> Iterator[str]:
    """Yield the rows of the guide's table."""
    for title, instance_type, efa in CASES:
        for network in NETWORKS:
            for hierarchical in (False, True):
                points = swept(instance_type, network, efa=efa, hierarchical=hierarchical)
                by_count = {point.gpus: point.efficiency for point in points}
                cells = [f"{by_count[count]:.0%}" for count in SHOWN]
                stop = stops_at(points)
                end = f"{stop[0]}, {stop[1]}" if stop else "beyond 1,024"
                way = "nodes first" if hierarchical else "one ring"
                yield f"| {title} | {network} | {way} | {' | '.join(cells)} | {end} |"


def draw() -> Any:
    """Return the figure: efficiency over GPUs, a panel for each case."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter

    with rc_context(SETTINGS):
        figure = Figure(figsize=(8.4, 3.9), layout="constrained")
        panels = figure.subplots(1, len(CASES), sharey=True)
        for axes, (title, instance_type, efa) in zip(panels, CASES, strict=True):
            for number, network in enumerate(NETWORKS):
                for hierarchical in (False, True):
                    points = swept(instance_type, network, efa=efa, hierarchical=hierarchical)
                    axes.plot(
                        [point.gpus for point in points],
                        [point.efficiency for point in points],
                        "--" if hierarchical else "-",
                        color=LIGHT.series[number],
                        marker=MARKERS[number],
                        ms=4,
                        lw=1.4,
                        label=f"{network}, {'nodes first' if hierarchical else 'one ring'}",
                    )
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.set_ylim(0, 1.05)
            axes.set_xlabel("GPUs")
            axes.set_title(title, loc="left", fontsize=10)
        panels[0].set_ylabel("images/s of so many times one GPU's")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def main() -> int:
    """Draw the picture; print the table."""
    save(draw(), PICTURE)
    for row in rows():
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
