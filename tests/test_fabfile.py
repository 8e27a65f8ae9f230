"""Every task has help with an example, and invalid input ends with a message and an exit status."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError, EndpointConnectionError

from cluster.aws.client import Aws
from cluster.cli.program import make_program
from cluster.cli.task_modules import MODULES
from cluster.doctor.checks import AccountError
from cluster.doctor.finding import Finding
from cluster.errors import AwsError, DeepcdkError
from cluster.session import Session
from tests.cluster.conftest import aws  # noqa: F401  # a fixture
from tests.factories import make_inventory

PROJECT = Path(__file__).resolve().parents[1]
TASKS = tuple(sorted(name for names in MODULES.values() for name in names))
RUN_TASKS = ("attach", "fetch", "logs", "resume", "rm", "show", "stop", "tensorboard")

NEEDED = {
    "compare": ("--run", "one", "--run", "two"),
    "replace": ("--node", "worker1"),
    "rm": ("--run", "one"),
    "run": ("--", "true"),
    "scale": ("--nodes", "3"),
    "stage-data": ("--source", "payload"),
    "sweep": ("--grid", "epochs=1,2"),
}
"""Arguments that a task requires."""

ASK_NOBODY = ("demo", "init", "plan", "prices", "recipes")
"""Tasks that need no cluster (the demo deploys its own); a plan also requests prices, without waiting long."""

NO_CLUSTER = ("demo", "init", "recipes")
"""Tasks that do not read cdk.json."""

STANDARD = "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
QUOTAS = {STANDARD: 1000.0, "VPCs per Region": 5.0, "EC2-VPC Elastic IPs": 5.0}
"""The quotas of an account; moto has only a few of them."""

RECORDED = "tests/cluster/report/records/digits"

Fab = Callable[..., tuple[int, str]]


@pytest.fixture
def fab(aws: Aws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Fab:  # noqa: F811  # the fixture above
    """Return a function that calls `fab` in this process, with an empty AWS account."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(PROJECT)

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["fab", *arguments])

        try:
            make_program().run()
            status = 0
        except SystemExit as error:
            status = int(error.code or 0)
        captured = capfd.readouterr()
        return status, captured.out + captured.err

    del aws  # moto, which serves an empty account
    monkeypatch.setattr("cluster.doctor.quotas.read_quotas", lambda *_: QUOTAS)
    return call


def test_every_task_is_listed(fab: Fab) -> None:
    status, text = fab("--list")
    assert status == 0
    assert {line.split()[0] for line in text.splitlines() if line.startswith("  ") and line[2] != " "} == set(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_help_shows_an_example(fab: Fab, task: str) -> None:
    status, text = fab("--help", task)
    assert status == 0
    assert f"Example: fab {task}" in text
    assert "--set" in text or task in NO_CLUSTER


def test_help_accepts_further_tasks(fab: Fab) -> None:
    assert fab("--help", "run", "status") == fab("--help", "run")


@pytest.mark.parametrize("nodes", ["0", "1.5"])
def test_invalid_number_of_nodes_is_rejected_before_calling_aws(
    fab: Fab, nodes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *_: pytest.fail("AWS was asked"))
    for words in (("train",), ("scale",), ("resume",), ("run", "--", "true")):
        status, text = fab(words[0], f"--nodes={-1 if words[0] == 'scale' else nodes}", *words[1:])
        assert (status, "must be a whole number from" in text) == (1, True), text


@pytest.mark.parametrize("task", ["train", "scale", "resume"])
def test_number_of_nodes_is_limited_by_deployed_cluster(fab: Fab, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed = make_inventory(group_maximum=64)
    monkeypatch.setattr(Session, "load_inventory", lambda _: deployed)
    monkeypatch.setattr(Session, "stack", deployed.stack)

    def connect(_: Session) -> None:
        raise DeepcdkError("the master is asked")

    monkeypatch.setattr(Session, "connect", connect)
    assert "the master is asked" in fab(task, "--nodes", "64")[1]
    status, text = fab(task, "--nodes", "65")
    assert status == 1
    assert "the master is asked" not in text
    assert "the deployed cluster allows at most 64" in text
    assert "max_workers in cdk.json is 16" in text
    assert "set max_workers to 65" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "--epochs", "0"), "--epochs"),
        (("train", "--recipe", "digit"), "did you mean digits"),
        (("train", "--entry", "train.py"), "needs --payload"),
        (("train", "--payload", "payload", "--entry", "train.py", "--epochs", "3"), "is for recipes"),
        (("train", "--", "--flag"), "argument = '--flag': unknown"),
        (("recipes", "--recipe", "digts"), "did you mean digits?"),
        (("recipes", "--recipe", "imagenet-fast", "--variant", "4-node"), "did you mean 4-nodes?"),
        (("recipes", "--all"), "needs a recipe"),
        (("bench", "--nodes", "2,1"), "must be ascending, without duplicates"),
        (("bench", "--run", "runs/", "--repeats", "3"), "leave out the flags that set what to measure"),
        (("plan", "--plot", "plan.gif"), "must end with .png or .svg"),
        (("train", "--env", "NAME"), "must be NAME=VALUE"),
        (("train", "--secret", "NOT_THERE"), "is not in your environment"),
        (("resume", "--secret", "NOT_THERE"), "is not in your environment"),
        (("train", "--cycle-time-ms", "fast"), "--cycle-time-ms"),
        (("train", "--hierarchical-allreduce"), "needs nodes with GPUs and --controller mpi"),
        (("status", "--set", "wrkers=2"), "did you mean workers"),
        (("up", "--set", "ssh_cidr=0.0.0.0/0"), "opens the master's SSH port to the whole internet"),
        (("up",), "ssh_cidr"),
        *(((task, "--run=../x"), "must be a run's id") for task in RUN_TASKS),
        (("report", "--run=other:A"), "must be a run's id"),
        (("compare",), "must name a sweep, or at least two runs"),
        (("compare", "--run", "runs/one"), "must name a sweep, or at least two runs"),
        (("compare", "--run", RECORDED, "--run", RECORDED), "is given twice"),
        (("report", "--run", "one", "--format", "html,md", "--into", "one.html"), "must be a directory"),
        (("report", "--run=one", "--run=two", "--into", "page"), "for several reports"),
        (("report", "--run", "tests"), "stack deepcdk is not deployed"),
        (("report", "--run", "./tests"), "has no record.json"),
        (("notebook", "--port", "65536"), "from 1 to 65535"),
        (("notebook", "--requirements", "missing.txt"), "--requirements"),
        (("--help", "sttaus"), "unknown task 'sttaus'; did you mean status?"),
        (("stage-data",), "SOURCE"),
        (("stage-data", "s3://"), "SOURCE = 's3://': must be s3://BUCKET/PREFIX"),
        (("bench", "--repeats", "0"), "--repeats = 0: must be 2 to 100"),
        (("bench", "--against", "/nonexistent"), "--against = '/nonexistent'"),
        (("train", "--entry", ""), "needs a value after --entry; its value is empty"),
        (("train", "--max-cost", "0"), "above 0, at most 10,000,000; or none: no limit"),
        (("stage-data", "--source", "payload", "--to", "nowhere"), "must be shared or local"),
        (("train", "--secret", "NAME=@~no-such-user/x"), "cannot be read"),
        (("logs", "--rank", "first"), "--rank"),
        (("stop", "--grace", "soon"), "--grace"),
        (("scale",), "--nodes"),
        (("replace",), "must name the worker"),
        (("train", "--skip-preflight", "--full-preflight"), "give only one of them"),
        (("rm",), "must be the id of the run to remove"),
        (("run",), "must follow after --"),
        (("run", "--nodes", "2", "--master", "--", "true"), "--master"),
        (("status", "--", "true"), "only `fab run`, `fab train`, `fab sweep` and `fab plan` accept words after --"),
    ],
)
def test_invalid_input_is_rejected_with_reason(fab: Fab, arguments: tuple[str, ...], says: str) -> None:
    status, text = fab(*arguments)
    assert (status, "Traceback" in text) == (1, False)
    assert re.search("^deepcdk: ", text, flags=re.MULTILINE)
    assert says in text


@pytest.mark.parametrize("task", [task for task in TASKS if task not in NO_CLUSTER])
def test_every_task_rejects_unknown_setting_before_asking(fab: Fab, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BaseClient, "_make_api_call", lambda *_: pytest.fail("AWS was asked"))
    words = NEEDED.get(task, ())
    at = words.index("--") if "--" in words else len(words)
    status, text = fab(task, *words[:at], "--set", "wrkers=2", *words[at:])
    assert (status, "did you mean workers" in text, "Traceback" in text) == (1, True, False)


@pytest.mark.parametrize("task", [task for task in TASKS if task not in ASK_NOBODY])
def test_ctrl_c_during_aws_call_exits_with_130(fab: Fab, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        if threading.current_thread().name.startswith("Thread-"):  # No process waits for it or reads its output.
            raise EndpointConnectionError(endpoint_url="http://nowhere")
        raise KeyboardInterrupt

    monkeypatch.setattr(BaseClient, "_make_api_call", interrupted)
    words = ("--set", "ssh_cidr=198.18.0.7/32", "--yes") if task == "up" else NEEDED.get(task, ())
    status, text = fab(task, *words)
    assert (status, "Traceback" in text, text.endswith("interrupted\n")) == (130, False, True)


def test_recipes_are_shown_as_list_individually_and_as_json(fab: Fab) -> None:
    listed = json.loads(fab("recipes", "--json")[1])
    names = [each["name"] for each in listed]
    assert "digits" in names
    shown = fab("recipes")[1]
    assert [name for name in names if name not in shown] == []
    one = json.loads(fab("recipes", "--recipe", "digits", "--json")[1])
    assert one["name"] == "digits"
    assert set(one) >= set(listed[0])
    assert "--epochs" in fab("recipes", "--recipe", "digits", "--all")[1]


def test_plan_shows_choice_diagram_and_assumptions_and_json(fab: Fab, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    words = ("plan", "--recipe", "imagenet-fast", "--instance", "p4d.24xlarge", "--nodes", "1,4")
    status, text = fab(*words, "--plot", str(picture), "--assumptions")
    assert (status, "Traceback" in text) == (0, False)
    assert "because it has the lowest product of time and cost" in text
    assert "assumptions for p4d.24xlarge" in text
    assert picture.read_text().startswith("<?xml")
    document = json.loads(fab(*words, "--json")[1])
    assert [each["nodes"] for each in document["candidates"]] == [1, 4]
    assert document["candidates"][0]["usd"]["value"] > 0
    assert document["prices"]["by_type"]["p4d.24xlarge"]["node"] > 0


def test_prices_show_date_source_and_denied_price_list(fab: Fab) -> None:
    status, text = fab("prices", "--instance", "p4d.24xlarge")
    assert (status, "Traceback" in text) == (0, False)
    assert "p4d.24xlarge, on demand" in text
    assert "fab prices --refresh" in text
    document = json.loads(fab("prices", "--json")[1])
    known = {row["what"]: row for row in document["prices"]}
    assert known["NAT gateway"]["usd"] == 0.045
    assert known["FSx for Lustre"]["usd"] is None
    status, text = fab("prices", "--refresh")
    assert (status, "Traceback" in text) == (0, False)
    assert "not refreshed: " in text, "moto has no price list"


@pytest.mark.parametrize("task", [t for t in TASKS if t not in ("doctor", *ASK_NOBODY, "up")])
def test_each_task_reports_a_missing_stack(fab: Fab, task: str) -> None:
    status, text = fab(task, *NEEDED.get(task, ()))
    assert (status, "Traceback" in text) == (1, False)
    assert "stack deepcdk is not deployed" in text
    assert "fab up" in text


def left_bucket() -> tuple[Any, str]:
    """Return an S3 client and the name of a bucket that a destroyed cluster left behind."""
    s3, name = boto3.Session().client("s3", region_name="us-east-1"), "deepcdk-runbucket-1"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": [{"Key": "deepcdk:cluster", "Value": "deepcdk"}]})
    return s3, name


def test_runs_of_a_deleted_stack_are_read_from_its_bucket(fab: Fab, tmp_path: Path) -> None:
    s3, name = left_bucket()
    run_id = "20261120-121314-digits-ab12"
    state = {"run_id": run_id, "state": "succeeded", "started": 0, "updated": 61, "hosts": ["w1"], "epoch": None}
    rest = {"checkpoints": [], "attempts": 1, "files": 2, "bytes": 10}
    record = {
        "run_id": run_id,
        "directory": f"/mnt/efs/runs/{run_id}",
        "state": state,
        "spec": None,
        "result": None,
        **rest,
    }
    s3.put_object(Bucket=name, Key=f"runs/{run_id}/record.json", Body=json.dumps(record).encode())
    listed = fab("runs", "--json")
    assert listed[0] == 0
    assert "the cluster is not deployed; using the copy in s3://deepcdk-runbucket-1/runs/" in listed[1]
    assert f"run {run_id}" in fab("show", "--from-bucket")[1]
    assert fab("fetch", "--into", str(tmp_path / "here"))[0] == 0
    assert json.loads((tmp_path / "here" / run_id / "record.json").read_text()) == record
    status, text = fab("fetch", "--into", str(tmp_path / "not UTF-8: \udcff"))
    assert (status, f"not UTF-8: \\udcff/{run_id}" in text) == (0, True)


def test_report_from_bucket_replaces_earlier_report(fab: Fab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3, name = left_bucket()
    run_id = json.loads((PROJECT / RECORDED / "record.json").read_text())["run_id"]
    for path in (PROJECT / RECORDED).iterdir():
        s3.put_object(Bucket=name, Key=f"runs/{run_id}/{path.name}", Body=path.read_bytes())
    s3.put_object(Bucket=name, Key=f"runs/{run_id}/report.html", Body=b"<script>")
    assert fab("fetch", run_id, "--into", str(tmp_path))[0] == 0
    assert (tmp_path / run_id / "report.html").read_text() == "<script>"
    monkeypatch.setattr("cluster.report.chosen_runs.RUNS", tmp_path)
    status, text = fab("report", run_id, "--from-bucket", "--json")
    (written,) = json.JSONDecoder().raw_decode(text)[0]["reports"]
    assert (status, written) == (0, {"run_id": run_id, "files": {"html": str(tmp_path / run_id / "report.html")}})
    page = (tmp_path / run_id / "report.html").read_text()
    assert run_id in page and "<script" not in page


def test_two_recorded_runs_are_compared_in_one_file(fab: Fab, tmp_path: Path) -> None:
    other, into = RECORDED.replace("digits", "resumed"), str(tmp_path / "both.md")
    status, text = fab("compare", RECORDED, other, "--format", "md", "--into", into, "--json")
    assert (status, json.JSONDecoder().raw_decode(text)[0]["files"]) == (0, {"md": into})


def test_up_without_ssh_key_explains_how_to_create_it(fab: Fab) -> None:
    status, text = fab("up", "--yes", "--set", "ssh_cidr=198.18.0.7/32")
    assert status == 1
    assert "ssh-keygen -t ed25519" in text


def test_up_shows_plan_and_asks_before_deploying(fab: Fab) -> None:
    status, text = fab("up", "--set", "ssh_cidr=198.18.0.7/32", "--set", "workers=3")
    assert status == 1
    assert "a t3.medium master and 3 c5.2xlarge workers, $1.155/h together (instances $1.062/h, " in text
    assert "--yes" in text


@pytest.mark.parametrize("flags", [(), ("--plan",)])
def test_up_rejects_exceeded_quotas_unless_forced(
    fab: Fab, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    monkeypatch.setattr("cluster.doctor.quotas.read_quotas", lambda *_: {**QUOTAS, STANDARD: 16.0})
    ssh_cidr = "--set=ssh_cidr=198.18.0.7/32"
    status, text = fab("up", *flags, ssh_cidr)
    assert status == 1
    assert "stack deepcdk would fail in this account, so nothing was created" in text
    assert "need 18, or 130 with max_workers" in " ".join(text.split())
    assert "set workers = 1" in text
    assert "or deploy anyway with --force" in " ".join(text.split())
    assert "[y/N]" not in text and "$" not in text
    _, forced = fab("up", *flags, ssh_cidr, "--force")
    assert "warning: vCPU quota" in forced
    assert "would fail in this account" not in forced
    _, smaller = fab("up", *flags, ssh_cidr, "--set=workers=1")
    assert "with max_workers; set a smaller max_workers" in " ".join(smaller.split())


def test_up_rejects_type_offered_in_no_zone(fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    # This module first: it imports the other one's function, and must not be imported while that is replaced.
    monkeypatch.setattr("cluster.doctor.instance_types.offers", lambda _, types: {kind: set() for kind in types})
    monkeypatch.setattr("cluster.deploy.zones.offers", lambda _, types: {kind: set() for kind in types})
    status, text = fab("up", "--set=ssh_cidr=198.18.0.7/32")
    assert (status, "zones for c5.2xlarge: not offered in us-east-1a" in text) == (1, True)


def refuse(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """Make AWS reject an EC2 operation."""
    call: Any = BaseClient._make_api_call  # type: ignore[attr-defined]  # as botocore's users replace it

    def refused(self: Any, name: str, given: Any) -> Any:
        if name == operation:
            raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "not for you"}}, name)
        return call(self, name, given)

    monkeypatch.setattr(BaseClient, "_make_api_call", refused)


def test_up_continues_without_permission_to_read_quotas(fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AwsError("not for you", where="reading the quotas of ec2", remedy="request it")

    monkeypatch.setattr("cluster.doctor.quotas.read_quotas", refused)
    _, text = fab("up", "--set=ssh_cidr=198.18.0.7/32")
    assert "not checked: vCPU quota: reading the quotas of ec2: not for you; request it" in " ".join(text.split())
    assert "zones: us-east-1a" in text


def test_cloudformation_chooses_zones_without_permission_to_list_them(
    fab: Fab, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "DescribeAvailabilityZones")
    status, text = fab("up", "--set=ssh_cidr=198.18.0.7/32")
    assert "warning: cannot list the availability zones, so CloudFormation chooses them" in " ".join(text.split())
    assert (status, "a t3.medium master" in text) == (1, True), "the question is asked"


def test_up_lists_the_zones_once(fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    call: Any = BaseClient._make_api_call  # type: ignore[attr-defined]  # as botocore's users replace it
    asked: list[str] = []

    def counted(self: Any, name: str, given: Any) -> Any:
        asked.append(name)
        return call(self, name, given)

    monkeypatch.setattr(BaseClient, "_make_api_call", counted)
    fab("up", "--plan", "--set=ssh_cidr=198.18.0.7/32")
    assert asked.count("DescribeAvailabilityZones") == 1


def test_up_stops_if_zones_of_deployed_cluster_are_unreadable(fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"StackName": "deepcdk", "StackStatus": "CREATE_COMPLETE"}
    for module in ("cluster.tasks.deploy", "cluster.doctor.finding"):
        monkeypatch.setattr(f"{module}.describe_stack", lambda *_: there)
    subnet = {"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": "us-east-1c"}}
    monkeypatch.setattr("cluster.doctor.finding.read_template", lambda *_: {"Resources": {"A": subnet}})
    refuse(monkeypatch, "DescribeAvailabilityZones")
    status, text = fab("up", "--yes", "--set=ssh_cidr=198.18.0.7/32", "--set=availability_zones=2")
    assert (status, "deepcdk: AWS denied the request: not for you" in text) == (1, True)
    assert "CloudFormation chooses" not in text


def test_up_continues_without_permission_to_read_reservation(fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, "DescribeCapacityReservations")
    _, text = fab("up", "--set=ssh_cidr=198.18.0.7/32", "--set=capacity_reservation=cr-0123456789abcdef0")
    assert "not checked: capacity reservation: describing cr-0123456789abcdef0" in " ".join(text.split())
    assert "zones: us-east-1a" in text


def test_forced_up_reports_missing_zones(fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.deploy.zones.all_zones", lambda _: ("us-east-1a",))
    status, text = fab("up", "--force", "--set=ssh_cidr=198.18.0.7/32", "--set=availability_zones=2")
    assert (status, "availability_zones = 2, but this account has only us-east-1a" in text) == (1, True)
    assert "set availability_zones = 1" in text


def test_up_prints_zones_to_set_for_cdk_deploy(fab: Fab, monkeypatch: pytest.MonkeyPatch) -> None:
    _, usual = fab("up", "--plan", "--set=ssh_cidr=198.18.0.7/32")
    assert "zones: us-east-1a, chosen by the instance types that they offer\n" in usual
    assert "the cluster keeps them" not in usual and "cdk deploy" not in usual
    monkeypatch.setattr("cluster.deploy.zones.all_zones", lambda _: ("us-east-1c",))
    _, other = fab("up", "--set=ssh_cidr=198.18.0.7/32")
    assert "zones: us-east-1c, chosen by the instance types that they offer; the cluster keeps them" in other
    assert 'write "zones": ["us-east-1c"] into cdk.json' in " ".join(other.split())


def test_duplicate_advice_is_printed_once() -> None:
    found = [Finding(check="zones", state="FAIL", what=what, remedy="set zones") for what in ("one", "two")]
    assert AccountError("deepcdk", found).remedy == "set zones; or deploy anyway with --force"


def test_doctor_reports_everything_and_exits_with_1_on_problems(fab: Fab) -> None:
    status, text = fab("doctor")
    assert (status, "Traceback" in text) == (1, False)
    assert "ssh_cidr = []: empty" in text
    assert "ssh-keygen" in text
    assert "account 123456789012" in text


def test_task_list_imports_no_large_packages() -> None:
    code = (
        "import sys; sys.path.insert(0, '.'); import fabfile;"
        "print(sorted({'boto3', 'botocore', 'rich', 'tensorflow', 'aws_cdk', 'keras'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout == "[]\n"
