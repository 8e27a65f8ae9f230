"""Three ranks compared with one on the same global batches, in uneven shares; see gradient_program.py."""

from __future__ import annotations

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
RANKS = 3
PROGRAM = Path(__file__).with_name("gradient_program.py")
# If scikit-learn is installed, Keras imports it, which takes two seconds in each of ten processes.
QUICKLY = f"import runpy, sys; sys.modules['sklearn'] = None; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
SMALL = ("lenet", "small", "lstm")
LARGE = ("alexnet", "resnet50")
"""One with plain layers, one with shortcuts and normalization over all ranks."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Train the small networks; return the results of each rank, including tests that need several ranks."""
    return ranks_found(tmp_path_factory.mktemp("small"), SMALL, "more")


@pytest.fixture(scope="module")
def found_of_large(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Train the large networks; return the results of each rank."""
    return ranks_found(tmp_path_factory.mktemp("large"), LARGE)


def ranks_found(folder: Path, networks: tuple[str, ...], *more: str) -> list[dict[str, Any]]:
    """Train all networks on one rank, then on several in one start."""
    words: list[str | Path] = [folder / "alone.npz", ",".join(networks)]
    run([], *words)
    launcher = [sys.executable, "-m", "agent.launch.horovodrun", "-np", str(RANKS), "-H", f"localhost:{RANKS}"]
    output = run([*launcher, "--gloo", "env", f"PYTHONPATH={ROOT}"], *words, *more)
    lines = re.findall(r"^\[(\d)\]<stdout>:FOUND (.*)$", output, re.MULTILINE)
    assert len(lines) == RANKS
    return [json.loads(text) for _, text in sorted(lines)]


def run(launcher: list[str], *words: str | Path) -> str:
    done = subprocess.run(
        [*launcher, sys.executable, "-c", QUICKLY, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        # On a separate core, a rank wakes a thousand times a second for Horovod. Here the ranks share cores.
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOROVOD_CYCLE_TIME": "5"},
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("network", SMALL)
def test_gradients_match_one_rank_with_uneven_shares(found: list[dict[str, Any]], network: str) -> None:
    for rank in found:
        assert rank[network] < 1e-9


@pytest.mark.full
@pytest.mark.parametrize("network", LARGE)
def test_gradients_of_large_networks_match_one_rank(found_of_large: list[dict[str, Any]], network: str) -> None:
    for rank in found_of_large:
        assert rank[network] < 1e-9


def test_gradients_sent_as_float16_are_nearly_the_same(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert 1e-9 < rank["compressed"] < 1e-3


def test_sums_include_all_ranks(found: list[dict[str, Any]]) -> None:
    """The batch has one image; rank 1 requested a stop; rank r left out r records. With three classes, five are all.

    Every rank knows each rank's duration of the previous step, and the duration of its passes in this step.
    """
    skipped = sum(range(len(found)))
    for rank in found:
        loss, first, five, stops, left_out, *own_s, pass_s = rank["sums"]
        assert loss > 0
        assert (own_s, 0.0 < pass_s < 60.0) == ([0.25, 0.5, 0.75], True)
        assert (first in (0.0, 1.0), five, stops, left_out) == (True, 1.0, 1.0, skipped)


def test_overflow_on_one_rank_skips_the_step_on_all_and_halves_their_scale(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["overflow"] == {"changed": False, "scale": 2.0**15 / 4, "good_steps": 0}


def test_moving_moments_agree_despite_local_normalization(found: list[dict[str, Any]]) -> None:
    assert len({rank["own moments"] for rank in found}) == 1


def test_parts_of_batch_are_normalized_over_all_ranks_in_turn(found: list[dict[str, Any]]) -> None:
    """Two concurrent parts would have the same name, which Horovod rejects."""
    assert len({rank["in parts"] for rank in found}) == 1
