"""The end of watching: the exit status and the message follow from the run's end."""

from __future__ import annotations

import dataclasses

from cluster.runs.follow import RunProgress
from cluster.runs.watch import describe_end


def test_a_success_tells_time_accuracy_cost_and_where_the_results_are() -> None:
    progress = RunProgress(run_id="one", state="succeeded", started=0.0, updated=1800.0, test_accuracy=0.98333)
    text, failed = describe_end(progress, 3.0)
    assert not failed
    assert text == (
        "run one succeeded after 30:00, test accuracy 98.33%, about $1.50 for its instances; "
        "results: `fab fetch --run one`"
    )


def test_a_failure_tells_its_reason_and_its_last_lines() -> None:
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


def test_a_node_that_went_needs_no_traceback() -> None:
    reason = (
        "deeplearning-worker2 is leaving the cluster (its group terminates this instance); to continue once its group "
        "has launched a replacement: `fab resume one`"
    )
    text, failed = describe_end(RunProgress(run_id="one", state="failed", reason=reason, last_lines=("a", "b")), None)
    assert failed
    assert text == f"deepcdk: run one failed: {reason}\n  do: read `fab logs --run one`"


def test_a_run_that_its_bound_stopped_tells_the_bound_and_how_to_go_on() -> None:
    progress = RunProgress(run_id="one", state="stopped", started=0.0, updated=60.0, bound="reached --max-hours 1: ...")
    text, failed = describe_end(progress, 3.0)
    assert not failed
    assert text == (
        "run one stopped after 1:00: it has reached --max-hours 1: ...; "
        "to continue, give `fab resume one` a higher limit"
    )
    unpriced = dataclasses.replace(progress, bound="--max-cost cannot be checked, because ...; start a new run")
    assert describe_end(unpriced, 3.0)[0] == f"run one stopped after 1:00: {unpriced.bound}"
