"""Public reports about several people who share one cluster, and about changes over time."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from aws_cdk import App

from agent.runs import run_record, run_summary
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.submission import Origin
from agent.supervisor.cli import occupancy
from cluster import master_answers as answers
from cluster.deploy import change_set, kept_images
from cluster.deploy.change_effects import describe_login_user
from cluster.errors import DeepcdkError
from cluster.nodes.live_runs import LiveRuns
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.worker_group import describe_alarms
from cluster.runs import run_owner
from cluster.runs.run_tables import record_table, runs_table
from cluster.tasks import runs as tasks
from cluster.tasks.deploy import describe_stop
from localcloud.api.cloudwatch import states
from localcloud.api.cloudwatch.expressions import Series, evaluate, parse
from stacks.cluster import ClusterStack, cluster_app
from stacks.config import KEPT_IMAGES, ClusterConfig, ConfigError
from stacks.images import image
from tests.factories import make_spec, make_stack
from tests.stacks.boot.nodelab import Lab, booted
from tests.stacks.clusters import snapshots

ALICE = {"user": "alice", "host": "desk", "identity": "arn:aws:iam::1:user/alice", "laptop": "0" * 32}


def test_user_who_started_run_is_recorded_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: skypilot #1565."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # This process holds the lock of the run.
    spec = make_spec(run_id="20260101-000000-one-ab12")
    runs = Runs(root=tmp_path)
    directory = RunDirectory(path=tmp_path / spec.run_id)
    directory.path.mkdir()
    run_record.write_origin(directory, Origin(started_by=ALICE))
    directory.write_state(State.starting(spec))
    summary = json.loads(json.dumps(run_summary.summary(directory.stored_state(), directory)))
    assert summary["started_by"] == ALICE
    assert answers.SUMMARY(summary) == ""
    table = runs_table([summary])
    assert dict(zip(table.columns, table.rows[0], strict=True))["started by"] == "alice@desk"
    shown = record_table(run_record.record(directory))
    assert ("started by", "alice@desk (arn:aws:iam::1:user/alice)") in shown.rows
    runs.claim(spec.run_id, spec.hosts)
    document = occupancy(runs)
    assert answers.LIVE(document) == ""
    assert Occupancy.from_document(document).starters == {spec.run_id: ALICE}


@pytest.mark.parametrize("origin", ["", "[]", '{"started_by": 3}', '{"started_by": {}}', "{}"])
def test_run_without_a_starter_is_shown_without_one(tmp_path: Path, origin: str) -> None:
    """Source: skypilot #1565; runs of an older version do not record it."""
    (tmp_path / "origin.json").write_text(origin)
    assert RunDirectory(path=tmp_path).started_by() is None
    assert not run_owner.is_others(None) and run_owner.describe(None) == ""


class Stopping:
    """A master with one run that is live or has ended."""

    def __init__(self, started_by: Mapping[str, str] | None, state: str) -> None:
        self.started_by, self.state, self.stopped = started_by, state, list[str]()

    @contextlib.contextmanager
    def connect(self) -> Iterator[None]:
        yield

    def supervisor(self, _master: object) -> Any:
        def stop(run_id: str, _grace_s: float) -> dict[str, Any]:
            self.stopped.append(run_id)
            return {"run_id": run_id, "state": "stopped", "was_live": True}

        status = {"run_id": "one", "state": self.state, "started_by": self.started_by}
        return SimpleNamespace(status=lambda _run: status, stop=stop)


@pytest.mark.parametrize(
    ("started_by", "state", "yes", "stops"),
    [
        (ALICE, "running", False, False),
        (ALICE, "queued", False, False),
        (ALICE, "running", True, True),
        (ALICE, "failed", False, True),
        (None, "running", False, True),
        ("own", "running", False, True),
        ("another home", "running", False, False),
    ],
)
def test_stop_asks_before_stopping_run_of_another_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started_by: Any, state: str, yes: bool, stops: bool
) -> None:
    """Source: skypilot #1565: `fab stop` on another laptop, without a terminal, stopped the run without asking."""
    monkeypatch.setenv("HOME", str(tmp_path))
    if started_by == "own":
        started_by = {**run_owner.here(), "identity": ""}
    elif started_by == "another home":
        started_by = {**run_owner.here(), "laptop": "f" * 32}
    session = Stopping(started_by, state)
    monkeypatch.setattr(tasks, "Session", lambda *_, **__: session)
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115, PTH123  # no terminal
    with contextlib.nullcontext() if stops else pytest.raises(DeepcdkError, match=r"(?s)stop run one, which .*--yes"):
        tasks.stop.body(yes=yes)
    assert session.stopped == ["one"] * stops


def test_every_task_that_stops_runs_shows_who_started_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Source: skypilot #5994."""
    monkeypatch.setenv("HOME", str(tmp_path))
    live = LiveRuns(run_ids=("one", "two"), starters={"one": ALICE, "two": run_owner.here()})
    assert describe_stop(live) == " First runs one, two are stopped. Somebody else started one (alice@desk)."


def test_user_without_passwd_entry_is_shown_by_number(tmp_path: Path) -> None:
    """In a container without a passwd entry, every task needed USER."""
    if os.geteuid():
        pytest.skip("needs root, to become another user")
    code = "from cluster.cli.program import provide_user; provide_user(); import getpass; print(getpass.getuser())"
    where = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}

    def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env={**where, **environ}, user=54321, group=54321, extra_groups=[], capture_output=True, text=True
        )

    assert run(code, HOME=str(tmp_path)).stdout == "uid54321\n"
    for started in (code, "from deepcdk.__main__ import cdk; cdk()"):
        done = run(started)
        assert done.returncode == 1 and "user 54321 has no home directory\n  do: set HOME" in done.stderr


PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"


def launch_template(image: Any, **more: Any) -> dict[str, Any]:
    properties = {"LaunchTemplateData": {"ImageId": image}}
    return {"Resources": {"Workers": {"Type": "AWS::EC2::LaunchTemplate", "Properties": properties, **more}}}


def parameter_store(images: Mapping[str, str]) -> Any:
    def get_parameters(*, Names: Sequence[str]) -> dict[str, Any]:  # the documented policy allows it
        return {"Parameters": [{"Name": name, "Value": images[name]} for name in Names if name in images]}

    return SimpleNamespace(client=lambda _: SimpleNamespace(get_parameters=get_parameters))


@pytest.mark.parametrize(
    "template",
    [launch_template({"Ref": "Image"}), launch_template("ami-old", Metadata={"deepcdk:image-parameter": PARAMETER})],
)
@pytest.mark.parametrize(
    ("newest", "context"), [("ami-new", {PARAMETER: "ami-old"}), ("ami-old", None), ("", {PARAMETER: "ami-old"})]
)
def test_deployed_image_is_kept_if_parameter_changes(
    template: dict[str, Any], newest: str, context: dict[str, str] | None
) -> None:
    """Source: aws-cdk #5675. A parameter that cannot be read may also name another image."""
    parameters = [{"ParameterKey": "Image", "ParameterValue": PARAMETER, "ResolvedValue": "ami-old"}]
    images = kept_images.deployed({"Parameters": parameters}, template)
    assert images == {PARAMETER: "ami-old"}
    superseded = kept_images.superseded(parameter_store({PARAMETER: newest} if newest else {}), images)
    found = kept_images.context(images, superseded)
    assert {key: json.loads(value) for key, value in found.items()} == ({KEPT_IMAGES: context} if context else {})
    said = "\n".join(kept_images.describe(images, superseded))
    assert ("to change to it: `fab up --update-images`" in said) == (newest == "ami-new")


def test_image_id_is_used_unchanged(tmp_path: Path) -> None:
    """Source: aws-cdk #5675."""
    assert kept_images.deployed({}, launch_template("ami-own")) == {}
    config = ClusterConfig(worker_image_id="ami-0123456789abcdef0")
    assert image(config, "worker", kept={"": "ami-old"}).id == "ami-0123456789abcdef0"


def test_template_contains_kept_image_and_its_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Source: aws-cdk #5675."""
    monkeypatch.setenv("CDK_VALIDATION", "false")
    app = App(context={KEPT_IMAGES: json.dumps({PARAMETER: "ami-0123456789abcdef0"})})
    ClusterStack(app, ClusterConfig(ssh_cidr=("198.51.100.0/24",)))
    document = app.synth().stacks[0].template
    templates = [each for each in document["Resources"].values() if each["Type"] == "AWS::EC2::LaunchTemplate"]
    assert len(templates) == 2
    for each in templates:
        assert each["Properties"]["LaunchTemplateData"]["ImageId"] == "ami-0123456789abcdef0"
        assert each["Metadata"]["deepcdk:image-parameter"] == PARAMETER
    assert document["Outputs"]["LoginUser"]["Value"] == "ec2-user"
    assert kept_images.deployed({}, document) == {PARAMETER: "ami-0123456789abcdef0"}


def test_plan_shows_another_login_user() -> None:
    """Source: aws-cdk #5675: another image parameter changed the user, and the master then rejected the SSH key."""
    outputs = {"LoginUser": {"Value": "ec2-user"}}
    was = {"Outputs": [{"OutputKey": "LoginUser", "OutputValue": "admin"}]}
    assert change_set._other_user(was, {"Outputs": outputs}) == ("admin", "ec2-user")
    assert change_set._other_user({}, {"Outputs": outputs}) is None
    effect = describe_login_user("admin", "ec2-user")
    assert "admin -> ec2-user" in effect.details and "--set login_user=admin" in effect.details


def test_boot_commands_run_on_each_worker_before_it_joins(tmp_path: Path) -> None:
    """Sources: gridai #148, renku PR 366: packages installed by hand were missing on a replaced node."""
    lab = Lab(tmp_path)
    commands = (f"echo 'one two' >> {tmp_path}/ran", f"cat >> {tmp_path}/ran; test ! -e /nowhere", "# a comment")
    for number in (1, 2):  # the second command replaces the first
        booted(lab.node("worker", number, commands=commands))
    assert (tmp_path / "ran").read_text() == "one two\n" * 2


def test_failed_boot_command_fails_the_node_with_the_command(tmp_path: Path) -> None:
    """Source: gridai #148."""
    lab = Lab(tmp_path)
    node = lab.node("worker", 1, commands=("echo no such package; exit 4", f"touch {tmp_path}/later"))
    status, said = node.boot()
    assert status == 4
    assert "no such package" in said
    assert "--success false --reason boot_commands: echo no such package; exit 4 failed with exit status 4" in (
        node.text("signals")
    )
    assert lab.owners() == {} and not (tmp_path / "later").exists()


def test_hanging_boot_command_fails_node_before_stack_timeout(tmp_path: Path) -> None:
    """Source: gridai #148. The node never signalled, so the deployment failed without a reason."""
    lab = Lab(tmp_path)
    node = lab.node("worker", 1, commands=("sleep 20; true", f"touch {tmp_path}/later"), ready_s=123)
    status, _ = node.boot()
    assert status == 124
    reason = (
        "boot_commands: sleep 20; true, stopped for ready_timeout_min "
        r"\(boot and earlier commands took \d+ s of 3 s\), failed with exit status 124"
    )
    assert re.search(f"--success false --reason {reason}", node.text("signals"))
    assert lab.owners() == {} and not (tmp_path / "later").exists()


@pytest.mark.parametrize("command", ["", "  ", "one\ntwo", "echo 'open", "a\0b", "tab\there"])
def test_boot_command_that_cannot_run_is_rejected(command: str) -> None:
    """Source: gridai #148."""
    with pytest.raises(ConfigError, match="boot_commands"):
        ClusterConfig(boot_commands=(command,))


def test_ready_timeout_too_short_for_boot_commands_is_rejected() -> None:
    """Source: gridai #148. Each command had one second if ready_timeout_min was 2."""
    for minutes in (1, 2, 4):
        with pytest.raises(ConfigError, match=f"ready_timeout_min = {minutes}: must be 5 or more with boot_commands"):
            ClusterConfig(boot_commands=("sleep 3",), ready_timeout_min=minutes)
        assert ClusterConfig(ready_timeout_min=minutes).ready_min == minutes
    assert ClusterConfig(boot_commands=("sleep 3",), ready_timeout_min=5).ready_min == 5
    assert ClusterConfig(boot_commands=("sleep 3",)).ready_min == 15


def test_boot_commands_exceeding_user_data_limit_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Source: gridai #148. Only workers run the commands, so the master boots whatever they do."""
    monkeypatch.setenv("CDK_VALIDATION", "false")
    config = ClusterConfig(ssh_cidr=("198.51.100.0/24",), boot_commands=("dnf install -y mesa-libGL", "x" * 2000))
    with pytest.raises(SystemExit, match=r"deepcdk: cluster.boot_commands: too long: .* EC2's limit is 16,384"):
        cluster_app(dataclasses.replace(config, boot_commands=("x" * 9000,)))
    stack = ClusterStack(App(), config)
    master, worker = stack._boot("master", "M", "t3.medium"), stack._boot("worker", "W", "c5.2xlarge")
    assert ("mesa-libGL" in worker, "mesa-libGL" in master) == (True, False)


def test_alarm_that_terminated_workers_is_shown() -> None:
    """Source: dstack #890: the run restarted "for workers that no longer answer", and no message named the alarm."""

    def activity(at: float, what: str, cause: str) -> dict[str, Any]:
        return {"StartTime": datetime.datetime.fromtimestamp(at, datetime.UTC), "Description": what, "Cause": cause}

    by_alarm = (
        "At 2026-01-01T00:00:00Z a monitor alarm deepcdk-IdleWorkers-AB in state ALARM triggered policy Stop changing "
        "the desired capacity from 2 to 0."
    )
    pages = [  # the newest first
        [
            activity(900, "Terminating EC2 instance: i-4", by_alarm),
            activity(170, "Launching a new EC2 instance: i-5", by_alarm),
            activity(160, "Terminating EC2 instance: i-3", "a user request explicitly set group desired capacity"),
            activity(150, "Terminating EC2 instance: i-2", by_alarm),
        ],
        [
            activity(150, "Terminating EC2 instance: i-1", by_alarm),
            activity(90, "Terminating EC2 instance: i-0", by_alarm),
        ],
    ]
    paginator = SimpleNamespace(paginate=lambda **_: [{"Activities": each} for each in pages])
    client = SimpleNamespace(get_paginator=lambda _: paginator)
    aws: Any = SimpleNamespace(client=lambda _: client)
    lines = describe_alarms(aws, make_stack(), {"started": 100.0, "updated": 200.0})
    assert lines == ["alarm deepcdk-IdleWorkers-AB terminated 2 workers at 00:02:30 UTC, during the run"]
    record = {"run_id": "r", "state": {"state": "failed", "started": 0, "updated": 1}, "spec": {}, "checkpoints": []}
    rows = record_table({**record, "attempts": 1, "directory": "/d", "files": 1, "bytes": 1, "alarms": lines}).rows
    assert ("alarm", lines[0]) in rows


def test_waiting_run_is_not_idle() -> None:
    """Source: dstack #890. The alarm is from the template, computed as CloudWatch's guide describes it."""
    document = yaml.safe_load(snapshots.path("everything").read_text(encoding="utf-8"))
    alarm = document["Resources"]["GuardIdle"]["Properties"]
    bound, *metrics = alarm["Metrics"]
    periods = alarm["EvaluationPeriods"]
    rule = states.Rule(
        comparison=alarm["ComparisonOperator"],
        threshold=alarm["Threshold"],
        periods=periods,
        to_alarm=periods,
        missing=alarm["TreatMissingData"],
    )
    count = rule.range

    def state(runs: list[float | None], *, size: float = 2.0) -> str:
        series: dict[str, Series] = {each["Id"]: [0.0] * count for each in metrics}
        series |= {"size": [size] * count, "runs": runs}
        return states.decide(rule, evaluate(parse(bound["Expression"]), series, count), "OK")

    nothing: list[float | None] = [None]
    assert state(nothing * count) == "ALARM", "the metric may not exist before the first run"
    assert state([1.0] * count) == "OK"
    assert state([*nothing * (count - 1), 1.0]) == "OK", "it has just begun"
    assert state([*[1.0] * (count - periods + 1), *nothing * (periods - 1)]) == "OK", "the master missed some periods"
    assert state([*[1.0] * (count - periods), *nothing * periods]) == "ALARM", "it ended"
    assert state(nothing * count, size=0.0) == "OK"
