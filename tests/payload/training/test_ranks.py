from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.horovod, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
PROGRAM = [sys.executable, str(Path(__file__).with_name("ranks_program.py"))]
LAUNCHER = [sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", "--gloo"]


def run(*command: str) -> list[dict[str, Any]]:
    """Run the program and return each rank's results."""
    done = subprocess.run(
        [*command[:-2], "env", f"PYTHONPATH={ROOT}", *PROGRAM, *command[-2:]],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [json.loads(text) for text in re.findall(r"^(?:\[\d\]<stdout>:)?FOUND (.*)$", done.stdout, re.MULTILINE)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def alone(root: Path) -> dict[str, Any]:
    """Return the results of one rank."""
    (found,) = run("alone", str(root))
    return found


@pytest.fixture(scope="module")
def together(root: Path, alone: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of two ranks that resume what one rank left."""
    return sorted(run(*LAUNCHER, "together", str(root)), key=lambda found: "RankFailed" in found["ended"], reverse=True)


def test_two_stopped_ranks_resume_bit_for_bit_with_their_own_dropout(
    together: list[dict[str, Any]],
) -> None:
    one, other = (rank["dropout"] for rank in together)
    for found in (one, other):
        assert found["stopped_with"] == ["step-00000004", "step-00000003"]
        assert found["resumed_from"] == "step-00000004"
        assert found["same_losses"] and found["same_weights"] and found["same_accuracy"] and found["same_train_loss"]
        assert "already contains checkpoints; use --resume" in found["without_resume"]
        assert found["seeds"] == found["seeds_of_the_resumed"]
    assert len(one["seeds"]) == 2
    for (seed, drawn), (other_seed, other_drawn) in zip(one["seeds"], other["seeds"], strict=True):
        assert drawn == other_drawn > 0
        assert seed != other_seed


def test_two_ranks_continue_the_run_of_one_rank_with_its_images_per_step(
    alone: dict[str, Any], together: list[dict[str, Any]]
) -> None:
    for rank in together:
        assert rank["moved"] == pytest.approx(alone["straight"][4:], rel=1e-5)


def test_changed_setting_is_rejected_or_reported(alone: dict[str, Any]) -> None:
    found = alone["changed"]
    assert found["refused"] == "SettingError: --seed 2: the run to resume had 1; give --seed 1, or start a new run"
    assert found["told"] == "--epochs 2 (was 1); --learning-rate 0.01 (was 0.05)"
    assert found["kept"] == ["step-00000006"]


def test_timed_checkpoints_occur_within_epoch_and_best_is_kept(alone: dict[str, Any]) -> None:
    found = alone["clock"]
    assert found["written"] == [f"step-0000000{step}" for step in range(1, 7)]
    assert {"bytes", "waited_s", "copied_s", "written_s", "slowed_s", "interval_s"} <= set(found["fields"])
    assert found["checkpoint_seconds"] > 0
    assert found["positions"].items() >= {"step-00000005": [1, 2], "step-00000006": [2, 0]}.items()
    assert found["accuracies"]["step-00000005"] is None
    measured = [accuracy for accuracy in found["accuracies"].values() if accuracy is not None]
    assert found["accuracies"]["step-00000006"] in measured


def test_sigterm_during_a_write_ends_with_both_checkpoints_whole(alone: dict[str, Any]) -> None:
    found = alone["terminated"]
    assert found["stopped"] and found["sent_at"] == ["step-00000003"]
    assert found["newest"] == found["said"] == found["names"][0]
    assert "step-00000003" in found["names"] and found["faults"] == 0
    assert found["waited_s"] > 0.1, "the stop's checkpoint waited for the one in flight"


def test_run_resumes_from_a_bucket(alone: dict[str, Any]) -> None:
    found = alone["bucket"]
    assert found["losses"] == alone["straight"]
    assert found["resumed_from"] == "step-00000004"
    assert found["left"] == ["step-00000006"]
    assert not found["local"]


def test_data_of_one_rank_that_end_early_stop_all_ranks(together: list[dict[str, Any]]) -> None:
    other, own = (rank["ended"] for rank in together)
    said = "the data of this rank ended after 1 of 3 steps of epoch 1; all ranks need the same complete files"
    assert own == f"DataError: {said}"
    assert re.fullmatch(rf"RankFailedError: rank 1 \(.*\): {said}", other)


def test_data_error_before_first_step_stops_all_ranks(together: list[dict[str, Any]]) -> None:
    own, other = (rank["damaged"] for rank in together)
    assert own == "DataError: /data/train-00001: record 7 is damaged"
    assert re.fullmatch(r"RankFailedError: rank 0 \(.*\): /data/train-00001: record 7 is damaged", other)


def test_test_data_error_on_one_rank_stops_all_ranks(together: list[dict[str, Any]]) -> None:
    other, own = (rank["untested"] for rank in together)
    assert own == "DataError: /data/test-00001: record 7 is damaged"
    assert re.fullmatch(r"RankFailedError: rank 1 \(.*\): /data/test-00001: record 7 is damaged", other)


def test_full_disk_is_reported_within_an_epoch_and_stops_ranks_at_last_checkpoint(
    together: list[dict[str, Any]],
) -> None:
    own, other = (rank["full"] for rank in together)
    assert [event["checkpoint"] for event in own["missed"]] == [f"step-0000000{step}" for step in (1, 2, 6)]
    assert re.match(r"cannot write .*step-00000001: No space left on device", own["missed"][0]["reason"])
    assert re.match(r"StorageError: cannot write .*step-00000006: No space left on device .* --resume", own["said"])
    assert re.match(r"RankFailedError: rank 0 \(.*\): cannot write .*step-00000006", other["said"])
    assert own["kept"] == ["step-00000005", "step-00000004", "step-00000003"]
    assert own["resumed_from"] == "step-00000005"


def test_full_disk_for_metrics_stops_all_ranks(together: list[dict[str, Any]]) -> None:
    own, other = (rank["metrics"] for rank in together)
    assert re.match(r"StorageError: cannot write .*metrics\.jsonl: No space left on device", own)
    assert re.match(r"RankFailedError: rank 0 \(.*\): cannot write .*No space left on device", other)


def test_killed_run_repeats_steps_from_the_last_valid_checkpoint(
    alone: dict[str, Any],
) -> None:
    found, whole = alone["crashed"], alone["clock"]
    assert found["kept"] == ["step-00000005", "step-00000004", "step-00000003"]
    assert found["resumed_from"] == "step-00000004"
    (said,) = found["passed_over"]
    assert found["told"] == said and re.search(r"step-00000005: damaged checkpoint: .*SHA-256", said)
    assert found["rest"] == alone["straight"][4:]
    assert (found["weights_sha256"], found["test_accuracy"]) == (whole["weights_sha256"], whole["test_accuracy"])


def test_infinite_weights_stop_all_ranks_and_keep_the_last_good_checkpoint(
    together: list[dict[str, Any]],
) -> None:
    for rank in together:
        found = rank["diverged"]
        assert re.match(
            r"DivergedError: the loss became nan at epoch 2, step 2, learning rate [\d.e-]+; use lower", found["said"]
        )
        assert found["kept"] == ["step-00000003"]
        assert found["resumed_from"] == "step-00000003"
    own, other = (rank["diverged"]["spoiled"] for rank in together)
    assert re.match(r"NotFiniteError: model/\S+ is not finite after 4 steps, so no checkpoint was written", own)
    assert re.match(r"RankFailedError: rank 0 \(.*\): model/\S+ is not finite after 4 steps", other)


def test_nan_loss_on_one_rank_stops_all_ranks_with_its_position(together: list[dict[str, Any]]) -> None:
    for rank in together:
        assert re.match(r"DivergedError: the loss became nan at epoch 1, step 1, learning rate", rank["nan"])


def test_each_rank_has_hosts_of_all_ranks(together: list[dict[str, Any]]) -> None:
    assert [rank["hosts"] for rank in together] == [["host0", "host1"]] * 2


def test_unaveraged_gradients_are_detected_after_first_step(together: list[dict[str, Any]]) -> None:
    for rank in together:
        assert rank["unaveraged"].startswith(
            "RanksDisagreeError: the ranks' weights differ after the first step: rank 0"
        )


def test_one_different_bit_is_detected_and_its_rank_reported(together: list[dict[str, Any]]) -> None:
    for rank in together:
        assert re.match(
            r"RanksDisagreeError: .* rank 0 \(host0\) \w{12}, rank 1 \(host1\) \w{12}\. Stop", rank["one_bit"]
        )


def test_sums_keep_the_precision_of_their_numbers(together: list[dict[str, Any]]) -> None:
    for rank in together:
        assert rank["sums"] == [2, 2 * (2**40 + 1)]


def test_result_states_ranks_steps_parameters_and_versions(together: list[dict[str, Any]]) -> None:
    result = together[0]["result"]
    assert (result["ranks"], result["steps"], result["parameters"]) == (2, 6, 431_080)
    assert result["versions"].keys() == {"python", "tensorflow", "keras", "horovod", "numpy"}
    assert (result["test_accuracy"] * 37) == pytest.approx(round(result["test_accuracy"] * 37))
    assert together[0]["event_files"] == 2, "one for each process that wrote events"
