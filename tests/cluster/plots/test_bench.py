"""The plot of a benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from cluster.plots.bench import draw_bench
from payload.settings.bench import TRAINING
from tests.cluster.bench.benches import feeding, scaling


def test_every_median_is_a_point_of_its_figure(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    rates, shares, widths, times = draw_bench(bench).axes
    drawn = [np.asarray(axes.lines[0].get_ydata()).tolist() for axes in (rates, shares)]
    assert drawn[0] == pytest.approx([each.images_per_s for each in bench.of_kind(TRAINING)])
    assert drawn[1] == pytest.approx([100, 100 / 1.1, 100 / 1.3])
    assert np.asarray(times.lines[0].get_ydata()).tolist() == pytest.approx([10_000])
    assert np.asarray(widths.lines[0].get_ydata()).tolist() == pytest.approx([1048576 / 0.01 / 1e9])


def test_input_pipeline_has_its_own_row(tmp_path: Path) -> None:
    images, files = draw_bench(feeding(tmp_path)).axes
    assert np.asarray(images.lines[0].get_ydata()).tolist() == pytest.approx([512, 1024])
    labels = files.get_legend_handles_labels()[1]
    lines = [bars.lines[0] for bars in files.containers if isinstance(bars, ErrorbarContainer)]
    drawn = {label: np.asarray(line.get_ydata()).tolist() for label, line in zip(labels, lines, strict=True)}
    assert drawn["write, shared"] == pytest.approx([10.48576, 2 * 1.048576 / 0.16])
    assert drawn["read, shared"] == pytest.approx([20.97152, 2 * 20.97152])
