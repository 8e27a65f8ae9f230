"""The metric that keeps a live run's workers: when it is published, and how failures are reported."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.remote.ssh import Completed, execute
from agent.runs import run_record
from agent.runs import stored_state as states
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.submission import Origin
from agent.supervisor import idle_alarm_metric
from agent.supervisor.idle_alarm_metric import LiveMetric, command
from tests.agent.supervisor.live_runs import script_spec, supervise
from tests.factories import make_state
from tests.waiting import eventually

DENIED = "An error occurred (AccessDenied) when calling the PutMetricData operation: no policy allows it"


class Api:
    """An AWS CLI that gives one answer; other commands are executed."""

    def __init__(self, status: int = 0, output: str = "") -> None:
        self.done, self.calls = Completed(status=status, output=output), 0

    def __call__(self, argv: Sequence[str], timeout_s: float) -> Completed:
        if "put-metric-data" not in argv:
            return execute(argv, timeout_s)
        self.calls += 1
        return self.done


@pytest.fixture(autouse=True)
def short_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_alarm_metric, "PERIOD_S", 0.01)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """Make the directory of a live run of a cluster in Ireland."""
    found = Runs(root=tmp_path)["one"]
    found.path.mkdir()
    run_record.write_origin(found, Origin(stack="lab", region="eu-west-1"))
    found.write_state(make_state())
    return found


def test_metric_is_in_the_clusters_namespace_and_region() -> None:
    words = command("lab", "eu-west-1")
    assert words[:4] == ["nice", "aws", "cloudwatch", "put-metric-data"]
    assert words[4:12] == ["--namespace", "deepcdk/lab", "--metric-name", "LiveRuns", "--value", "1", "--unit", "Count"]
    assert words[12:14] == ["--region", "eu-west-1"]


def test_only_live_run_publishes_repeatedly(directory: RunDirectory) -> None:
    api = Api()
    metric = LiveMetric(directory, api)
    with metric.published():
        eventually(lambda: api.calls >= 3)
        directory.write_state(make_state(state="succeeded"))
        time.sleep(0.1)
        before = api.calls
        time.sleep(0.1)
        assert api.calls == before
    assert metric.trouble == ""


def test_publishing_stops_with_supervisor(directory: RunDirectory) -> None:
    api = Api()
    with LiveMetric(directory, api).published():
        eventually(lambda: api.calls)
    time.sleep(0.1)
    before = api.calls
    time.sleep(0.1)
    assert api.calls == before


@pytest.mark.parametrize("lost", ["state", "origin"])
def test_run_without_state_or_origin_holds_no_worker(directory: RunDirectory, lost: str) -> None:
    if lost == "state":
        states.forget(directory.run_id)
    else:
        (directory.path / "origin.json").unlink()
    api = Api()
    with LiveMetric(directory, api).published():
        time.sleep(0.1)
    assert api.calls == 0


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        (DENIED, "do: run `fab up` to grant the master this permission"),
        (
            'Could not connect to the endpoint URL: "https://..."',
            "do: check that the master can reach CloudWatch's endpoint",
        ),
        ("", "status 255; do: check that the master"),
    ],
)
def test_repeated_failures_are_reported_with_fix_until_success(
    directory: RunDirectory, output: str, remedy: str
) -> None:
    api = Api(255, f"usage\n{output}\n" if output else "")
    metric = LiveMetric(directory, api)
    with metric.published():
        trouble = eventually(lambda: metric.trouble)
        assert api.calls >= idle_alarm_metric.MAX_FAILURES
        assert (output in trouble, remedy in trouble) == (True, True)
        api.done = Completed(status=0, output="")
        eventually(lambda: not metric.trouble)


def test_master_that_cannot_start_the_call_reports_it(directory: RunDirectory) -> None:
    def refuse(argv: Sequence[str], timeout_s: float) -> Completed:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    metric = LiveMetric(directory, refuse)
    with metric.published():
        assert "Cannot allocate memory; do: check that the master" in eventually(lambda: metric.trouble)
    without_cli = LiveMetric(directory, Api(127, "nice: 'aws': No such file or directory"))
    with without_cli.published():
        assert "do: install the AWS CLI on the master" in eventually(lambda: without_cli.trouble)


def test_cluster_without_the_idle_alarm_reports_no_failure(directory: RunDirectory) -> None:
    run_record.write_origin(directory, Origin(stack="lab", region="eu-west-1", config={"idle_minutes": 0}))
    api = Api(255, DENIED)
    metric = LiveMetric(directory, api)
    with metric.published():
        eventually(lambda: api.calls > idle_alarm_metric.MAX_FAILURES)
    assert metric.trouble == ""


class Repaired(Api):
    """An AWS CLI that is rejected until the run has reported it."""

    def __init__(self, log: Path) -> None:
        super().__init__(255, DENIED)
        self._log = log

    def __call__(self, argv: Sequence[str], timeout_s: float) -> Completed:
        if DENIED in self._log.read_text():
            self.done = Completed(status=0, output="")
        return super().__call__(argv, timeout_s)


def test_run_that_cannot_publish_reports_it_until_it_can(efs: Path) -> None:
    log = efs / "runs/one/launcher.log"
    wait = f"until grep -q 'LiveRuns is published' {log}; do sleep 0.1; done; sleep 1"
    state, directory = supervise(script_spec(efs, wait), Origin(stack="lab", region="eu-west-1"), Repaired(log))
    assert state.state == "succeeded"
    assert log.read_text().count("warning: the idle alarm may terminate the workers") == 1
    assert run_record.record(directory)["course"]["unpublished"] == ""
