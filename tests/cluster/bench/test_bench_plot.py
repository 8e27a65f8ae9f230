"""Facts about the picture of a benchmark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cluster.bench.bench_plot import draw_bench
from cluster.bench.measurements import read_bench
from payload.settings.bench import TRAINING
from tests.cluster.bench.benches import event, scaling, written


def test_every_median_is_a_point_of_its_figure(tmp_path: Path) -> None:
    bench = scaling(tmp_path)
    rates, shares, widths, times = draw_bench(bench).axes
    drawn = [np.asarray(axes.lines[0].get_ydata()).tolist() for axes in (rates, shares)]
    assert drawn[0] == pytest.approx([each.images_per_s for each in bench.of_kind(TRAINING)])
    assert drawn[1] == pytest.approx([100, 100 / 1.1, 100 / 1.3])
    assert np.asarray(times.lines[0].get_ydata()).tolist() == pytest.approx([10_000])
    assert np.asarray(widths.lines[0].get_ydata()).tolist() == pytest.approx([1048576 / 0.01 / 1e9])


def test_one_node_has_no_picture_of_sums(tmp_path: Path) -> None:
    assert len(draw_bench(read_bench(written(tmp_path, [event(TRAINING, 1, (0.1, 0.1))]))).axes) == 2
