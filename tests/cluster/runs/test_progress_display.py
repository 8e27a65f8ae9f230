"""The progress display: one line with all known values, and no others."""

from __future__ import annotations

import dataclasses

import pytest
import rich

from cluster.runs.progress_display import (
    LiveDisplay,
    PlainDisplay,
    cost_so_far,
    describe,
    describe_end,
    describe_epoch,
)
from cluster.runs.run_progress import RunProgress, reduce

PROGRESS = RunProgress(
    run_id="one", state="running", started=0.0, updated=1800.0, epochs=4, epoch=2, step=5, steps_per_epoch=10,
    images_per_s=1234.5, loss=0.5, accuracy=0.9, test_accuracy=0.95, eta_s=61.0,
)  # fmt: skip


def test_line_has_all_known_values() -> None:
    assert describe(PROGRESS, 3.0) == (
        "epoch 2/4, step 5/10, 1,234 images/s, loss 0.5000, accuracy 90.00%, test 95.00%, 1:01 left, $1.50 so far"
    )


def test_price_of_nodes_of_run_overrides_price_of_all_instances() -> None:
    assert cost_so_far(PROGRESS, 3.0) == 1.5
    assert cost_so_far(dataclasses.replace(PROGRESS, usd_per_hour=1.0), 3.0) == 0.5
    spent = {"seconds": 1.0, "usd": 0.1, "usd_per_hour": 1.0}
    assert reduce(PROGRESS, {"type": "state", "state": "running", "spent": spent}).usd_per_hour == 1.0


def test_end_of_an_epoch_fits_on_a_narrow_terminal() -> None:
    line = describe_epoch(dataclasses.replace(PROGRESS, epoch=100, epochs=100, accuracy=1.0, images_per_s=12345.0))
    assert line == "epoch 100/100, 12,345 images/s, loss 0.5000, accuracy 100.00%, test 95.00%"
    assert len(line) < 80


def test_live_display_shows_everything_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with LiveDisplay(3.0) as display:
        display.show(PROGRESS, {"type": "heartbeat"})
    shown = capsys.readouterr().out.splitlines()
    assert "38%" in shown[0]
    assert "epoch 2/4, step 5/10, 1:01 left, $1.50 so far" in shown[0]
    assert shown[1].strip() == "1,234 images/s, loss 0.5000, accuracy 90.00%, test 95.00%"


def test_unknown_price_is_not_shown() -> None:
    assert "$" not in describe(PROGRESS, None)
    assert cost_so_far(RunProgress(), 3.0) is None


def test_plain_lines_are_printed_for_states_epochs_and_some_steps() -> None:
    written: list[str] = []
    now = [0.0]
    display = PlainDisplay(written.append, clock=lambda: now[0])
    state = {"type": "state"}
    step = {"type": "metric", "record": {"event": "step"}}
    with display:
        display.show(PROGRESS, state)
        display.show(PROGRESS, state)
        display.show(PROGRESS, step)
        now[0] = 1.0
        display.show(PROGRESS, step)
        display.show(PROGRESS, {"type": "metric", "record": {"event": "epoch"}})
        now[0] = 7.0
        display.show(PROGRESS, step)
        display.show(PROGRESS, {"type": "heartbeat"})
    assert [line.split(",")[0] for line in written] == ["one: running", "epoch 2/4", "epoch 2/4", "epoch 2/4"]


MISSED = {"event": "checkpoint_missed", "checkpoint": "step-9", "reason": "cannot write /mnt/efs: No \x1b[1mspace left"}
SLOW = {"event": "straggler", "rank": 2, "is_over": False, "text": "rank 2 (worker2) is a straggler: \x1b[1mits own"}
RESUMED = {"event": "start", "passed_over": "step-8: damaged checkpoint: cut", "resumed_from": "step-7"}
ANEW = {**RESUMED, "resumed_from": None}


def test_missed_and_damaged_checkpoints_are_reported_while_the_run_is_watched(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    written: list[str] = []
    with LiveDisplay() as live:
        for record in (MISSED, RESUMED, ANEW, {"event": "start", "passed_over": None}):
            for display in (PlainDisplay(written.append), live):
                display.show(PROGRESS, {"type": "metric", "record": record})
    assert len(written) == 3
    assert (
        written[0].startswith("warning: checkpoint step-9 was not written: cannot write /mnt/efs: No ")
        and "\x1b" not in written[0]
    )
    assert written[1] == "warning: skipped step-8: damaged checkpoint: cut; continues from step-7"
    assert written[2] == "warning: skipped step-8: damaged checkpoint: cut; starts from the beginning"
    shown = capsys.readouterr().out
    assert "warning: checkpoint step-9 was not written" in shown and written[1] in shown


def test_straggler_is_a_warning_and_its_recovery_is_not() -> None:
    written: list[str] = []
    display = PlainDisplay(written.append)
    for record in (SLOW, {**SLOW, "is_over": True, "text": "rank 2 (worker2) keeps up with the others again"}):
        display.show(PROGRESS, {"type": "metric", "record": record})
    assert written[0].startswith("warning: rank 2 (worker2) is a straggler: ") and "\x1b" not in written[0]
    assert written[1:] == ["rank 2 (worker2) keeps up with the others again"]


def test_log_is_printed_unchanged() -> None:
    lines: list[str] = []
    PlainDisplay(lines.append).show(RunProgress(), {"type": "log", "next": 1, "lines": ["[0]<stdout>:[bold] \x1b[1m"]})
    assert lines == ["[0]<stdout>:[bold] \x1b[1m"]


def test_live_display_accepts_text_resembling_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveDisplay(None) as display:
        display.show(dataclasses.replace(PROGRESS, reason="[/red] [bold"), {"type": "state"})
        display.note("[/nothing]")
    assert "[/nothing]" in capsys.readouterr().out


def test_live_display_prints_after_ctrl_c_interrupted_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    rich.get_console()._enter_buffer()  # an interrupted print leaves its text in the buffer of Rich's common console
    try:
        with LiveDisplay(None) as display:
            display.note("a note")
        assert "a note" in capsys.readouterr().out
    finally:
        rich.get_console()._exit_buffer()


def test_success_shows_time_accuracy_cost_and_place_of_results() -> None:
    progress = RunProgress(run_id="one", state="succeeded", started=0.0, updated=1800.0, test_accuracy=0.98333)
    text, failed = describe_end(progress, 3.0)
    assert not failed
    assert text == (
        "run one succeeded after 30:00, test accuracy 98.33%, about $1.50 for its instances; "
        "results: `fab fetch --run one`"
    )


def test_failure_shows_reason_and_last_lines() -> None:
    text, failed = describe_end(
        RunProgress(run_id="one", state="failed", reason="status 1", last_lines=("a", "b")), None
    )
    assert failed
    assert text == "deepcdk: run one failed: status 1\n    a\n    b\n  do: read `fab logs --run one`"


def test_each_line_of_a_reason_is_a_line() -> None:
    reason = "this master: pip failed | pypi.org cannot be reached"
    text, _ = describe_end(RunProgress(run_id="one", state="failed", reason=reason), None)
    assert text.splitlines()[:2] == [
        "deepcdk: run one failed: this master: pip failed",
        "    pypi.org cannot be reached",
    ]


def test_lost_node_is_shown_without_traceback() -> None:
    reason = (
        "deeplearning-worker2 is leaving the cluster (its group terminates this instance); to continue once its group "
        "has launched a replacement: `fab resume one`"
    )
    text, failed = describe_end(RunProgress(run_id="one", state="failed", reason=reason, last_lines=("a", "b")), None)
    assert failed
    assert text == f"deepcdk: run one failed: {reason}\n  do: read `fab logs --run one`"


def test_run_stopped_at_limit_shows_limit_and_how_to_continue() -> None:
    progress = RunProgress(run_id="one", state="stopped", started=0.0, updated=60.0, bound="reached --max-hours 1: ...")
    text, failed = describe_end(progress, 3.0)
    assert not failed
    assert text == (
        "run one stopped after 1:00: it has reached --max-hours 1: ...; "
        "to continue, give `fab resume one` a higher limit"
    )
    unpriced = dataclasses.replace(progress, bound="--max-cost cannot be checked, because ...; start a new run")
    assert describe_end(unpriced, 3.0)[0] == f"run one stopped after 1:00: {unpriced.bound}"
