from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from payload.training.progress import Progress

pytestmark = pytest.mark.horovod

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Run collective_program.py once on two ranks; return what each found."""
    directory = tmp_path_factory.mktemp("collective")
    program = Path(__file__).with_name("collective_program.py")
    command = [sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", "--gloo"]
    done = subprocess.run(
        [*command, "env", f"PYTHONPATH={ROOT}", sys.executable, str(program), str(directory)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = re.findall(r"^\[(\d)\]<stdout>:FOUND (.*)$", done.stdout, re.MULTILINE)
    return [json.loads(text) for _, text in sorted(lines)]


def test_each_rank_knows_the_hosts_of_all(found: list[dict[str, Any]]) -> None:
    assert [rank["hosts"] for rank in found] == [["host0", "host1"]] * 2


def test_gradients_of_two_ranks_equal_those_of_one_on_the_same_uneven_batches(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["gradient_difference"] < 1e-6


def test_gradients_that_nobody_averages_are_caught_after_the_first_step(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["unaveraged"].startswith(
            "RanksDisagreeError: the ranks' weights differ after the first step: rank 0"
        )


def test_a_single_bit_of_difference_is_caught_and_the_rank_named(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert re.match(
            r"RanksDisagreeError: .* rank 0 \(host0\) \w{12}, rank 1 \(host1\) \w{12}\. Stop", rank["one_bit"]
        )


def test_a_failure_on_one_rank_is_known_to_all(found: list[dict[str, Any]]) -> None:
    assert [rank["failure"] for rank in found] == ["rank 1 (host1): file x is damaged", "file x is damaged"]


def test_a_stop_asked_of_one_rank_stops_all_with_a_checkpoint(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["stop"]["stopped"]
        assert rank["stop"]["stopped_at"] == [1, 2]  # three steps an epoch; asked at the fifth
        assert rank["stop"]["resumed_from"] == "step-00000005"


def test_a_resumed_run_ends_with_the_weights_of_one_never_stopped(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["stop"]["same_weights"]
        assert rank["stop"]["same_figures"]


def test_a_run_is_not_begun_over_the_checkpoints_of_another(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert "already holds checkpoints; give --resume" in rank["stop"]["without_resume"]


def test_a_completed_run_leaves_result_checkpoints_and_events(found: list[dict[str, Any]]) -> None:
    stop = found[0]["stop"]
    result = stop["straight"]
    assert result["ranks"] == 2
    assert result["steps"] == 6
    assert result["parameters"] == 431_080
    assert result["versions"].keys() == {"python", "tensorflow", "keras", "horovod", "numpy"}
    assert (result["test_accuracy"] * 37) == pytest.approx(round(result["test_accuracy"] * 37))
    assert stop["checkpoints"] == ["step-00000003", "step-00000006"]
    assert stop["events"] == 1


def test_a_loss_that_is_no_number_ends_all_ranks_with_its_place(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert re.match(r"the loss became nan at epoch 1, step 1, learning rate", rank["diverged"])


def test_a_full_disk_of_rank_0_ends_all_ranks(found: list[dict[str, Any]]) -> None:
    assert re.match(r"cannot write .*metrics\.jsonl: No space left on device", found[0]["full"])
    assert found[1]["full"].startswith("rank 0 (")
    assert "No space left on device" in found[1]["full"]


def test_sums_keep_the_precision_of_their_numbers(found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert rank["sums"] == [2, 2 * (2**40 + 1)]


def test_the_progress_of_a_run_starts_at_zero() -> None:
    progress = Progress(recipe="digits", seed=1, global_batch=2)
    assert (progress.epoch, progress.step, progress.total_steps) == (0, 0, 0)
