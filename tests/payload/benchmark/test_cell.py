from __future__ import annotations

import os

import pytest

from payload.benchmark.config import BenchmarkConfig
from payload.benchmark.process import run_cell


@pytest.mark.tensorflow
def test_inference_is_measured_at_another_size_with_one_thread() -> None:
    argv = ["--networks", "lenet", "--batch-sizes", "2", "--mode", "inference", "--image-size", "32", "--steps", "5"]
    (cell,) = BenchmarkConfig.from_argv([*argv, "--intra-op-threads", "1"]).cells()
    result = run_cell(cell, os.environ, 120)
    assert result.failure is None and result.figures is not None
    # At 32 pixels 5 x 5 of each of the 50 filters reach the first dense layer, at 28 only 4 x 4.
    assert result.figures.parameters == 431_080 + (5 * 5 - 4 * 4) * 50 * 500
    assert len(result.figures.step_seconds) == 5
    # The first step, which TensorFlow compiles, is none of them; one of theirs may wait for the processor.
    assert result.figures.first_step_seconds > min(result.figures.step_seconds)
