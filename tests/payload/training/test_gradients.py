"""Two, three and four ranks against one, on the same global batches; see gradient_program.py."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
THREE = 3
"""Ranks on which more is tried: uneven shares, one of them empty."""
PROGRAM = Path(__file__).with_name("gradient_program.py")
# Keras imports scikit-learn where it finds it, which takes each of ten processes two seconds.
QUICKLY = f"import runpy, sys; sys.modules['sklearn'] = None; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
FAMILIES = ("lenet", "fashion-vgg", "alexnet", "vgg16", "googlenet", "inception-bn", "inception-v3", "resnet50", "lstm")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train all families on one rank; return the file of what changed in them."""
    file = tmp_path_factory.mktemp("gradients") / "alone.npz"
    run([], file)
    return file


@pytest.fixture(scope="module", params=[2, 3, 4], ids="{} ranks".format)
def found(request: pytest.FixtureRequest, alone: Path) -> list[dict[str, Any]]:
    """Train all families on some ranks; return what each rank found."""
    return ranks_found(request.param, alone)


@pytest.fixture(scope="module")
def of_three(alone: Path) -> list[dict[str, Any]]:
    """Train all families on three ranks, and do more."""
    return ranks_found(THREE, alone)


@functools.cache
def ranks_found(ranks: int, alone: Path) -> list[dict[str, Any]]:
    """Start ranks once, all families in one start."""
    launcher = [
        sys.executable,
        "-m",
        "agent.launch.horovodrun",
        "-np",
        str(ranks),
        "-H",
        f"localhost:{ranks}",
        "--gloo",
    ]
    output = run([*launcher, "env", f"PYTHONPATH={ROOT}"], alone, *(["more"] if ranks == THREE else []))
    lines = re.findall(r"^\[(\d)\]<stdout>:FOUND (.*)$", output, re.MULTILINE)
    assert len(lines) == ranks
    return [json.loads(text) for _, text in sorted(lines)]


def run(launcher: list[str], *words: str | Path) -> str:
    done = subprocess.run(
        [*launcher, sys.executable, "-c", QUICKLY, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        # A rank on its own core wakes a thousand times a second for Horovod; here they share cores with each other.
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOROVOD_CYCLE_TIME": "5"},
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_one_rank_though_shares_are_uneven(found: list[dict[str, Any]], family: str) -> None:
    for rank in found:
        assert rank[family] < 1e-9


def test_gradients_that_travel_as_float16_come_back_nearly_the_same(of_three: list[dict[str, Any]]) -> None:
    for rank in of_three:
        assert 1e-9 < rank["compressed"] < 1e-3


def test_sums_are_those_of_all_ranks(of_three: list[dict[str, Any]]) -> None:
    """One image; rank 1 was asked to stop; rank r left out r records. Of three classes, five are all.

    Every rank knows how long the step before took each, and how long its own passes took now.
    """
    skipped = sum(range(len(of_three)))
    for rank in of_three:
        loss, first, five, stops, left_out, *own_s, pass_s = rank["sums"]
        assert loss > 0
        assert (own_s, 0.0 < pass_s < 60.0) == ([0.25, 0.5, 0.75], True)
        assert (first in (0.0, 1.0), five, stops, left_out) == (True, 1.0, 1.0, skipped)


def test_an_overflow_on_one_rank_skips_the_step_on_all_and_halves_their_scale(of_three: list[dict[str, Any]]) -> None:
    for rank in of_three:
        assert rank["overflow"] == {"changed": False, "scale": 2.0**15 / 4, "good_steps": 0}


def test_moving_moments_agree_though_each_rank_normalises_by_its_own_images(of_three: list[dict[str, Any]]) -> None:
    assert len({rank["own moments"] for rank in of_three}) == 1


def test_parts_of_a_batch_are_normalised_over_all_ranks_one_after_the_other(of_three: list[dict[str, Any]]) -> None:
    """Two parts at a time would meet under one name, which Horovod refuses."""
    assert len({rank["in parts"] for rank in of_three}) == 1
