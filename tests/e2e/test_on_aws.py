"""Questions that only AWS can answer: its images, packages, keys, interfaces and metrics (`pytest tests/e2e --aws`).

The probes also run on the embedded cloud; the test is then skipped with the reason. The JUnit report contains the
answers. `events.json`, in the same directory, contains the stack's events until its deletion.
"""

from __future__ import annotations

import datetime
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests import account
from tests.e2e.conftest import Deployment
from tests.e2e.test_tasks import run
from tests.waiting import eventually

pytestmark = pytest.mark.aws

AMAZON_LINUX: Final = "amzn 2023"
PROBE_HOURS: Final = 0.2
"""Time limit of the run that reads the limits of ranks."""
METRICS_S: Final = 900.0
"""How long CloudWatch may take for the first values and states."""
PYTHON: Final = "/opt/deepcdk/bin/python3"
PROBES: Final = {
    "os": ". /etc/os-release; echo $ID $VERSION_ID",
    "kernel": "uname -r",
    "python": f"readlink -f {PYTHON}",
    "venv": f'at=$(mktemp -d); trap "rm -r $at" EXIT; {PYTHON} -m venv $at/v && $at/v/bin/python -c "import pip, ssl"',
    "cfn-signal": "rpm -qf /opt/aws/bin/cfn-signal",
    "packages": "sudo -n dnf -q makecache",
    "lustre": "sudo -n dnf -q -y install lustre-client && sudo -n modprobe lustre && grep -w lustre /proc/filesystems",
}
"""Shell commands for a worker. Only the last one changes it."""
EVERYWHERE: Final = ("os", "kernel", "python", "venv")
PROBE: Final = """\
import json, subprocess, sys
def run(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, errors="replace")
    return [done.returncode, (done.stdout + done.stderr).strip()[-500:]]
print(json.dumps({name: run(command) for name, command in json.loads(sys.argv[1]).items()}))
"""
LIMITS: Final = """\
import resource
print("memlock", *resource.getrlimit(resource.RLIMIT_MEMLOCK))
"""
LONG_NOTICE_S: Final = 3600
"""A notice longer than any termination without one."""
Record = Callable[[str, object], None]


def needs(condition: object, what: str) -> None:
    """Skip the rest of a test after its probe has run, unless AWS gives the answer."""
    if not condition:
        pytest.skip(f"only AWS can answer, with {what}")


@pytest.fixture(scope="module")
def node(deployment: Deployment) -> dict[str, tuple[int, str]]:
    """Run all probes on a worker; return the status and output of each."""
    probing = ("--nodes", "1", "--json", "--", "python3", "-c", PROBE, json.dumps(PROBES))
    done = eventually(lambda: done if (done := run(deployment, *probing, check=False)).returncode == 0 else None)
    (host,) = json.loads(done.stdout)["hosts"]
    return {name: (status, output) for name, (status, output) in json.loads(host["stdout"]).items()}


@pytest.mark.parametrize("probe", EVERYWHERE)
def test_workers_python_makes_virtual_environments(
    node: dict[str, tuple[int, str]], probe: str, record_property: Record
) -> None:
    status, output = node[probe]
    record_property(probe, output)
    assert status == 0, output
    needs(node["os"][1] == AMAZON_LINUX, "a worker on Amazon Linux 2023")
    assert probe != "python" or output.endswith("python3.12")


@pytest.mark.parametrize("probe", sorted(PROBES.keys() - EVERYWHERE))
def test_amazon_linux_has_the_program_or_package(
    node: dict[str, tuple[int, str]], probe: str, record_property: Record
) -> None:
    status, output = node[probe]
    record_property(probe, f"status {status} on {node['kernel'][1]}: {output}")
    needs(node["os"][1] == AMAZON_LINUX, "a worker on Amazon Linux 2023")
    assert status == 0, output


def test_every_node_signals_success(deployment: Deployment) -> None:
    reasons: list[str] = []
    more: dict[str, str] = {}
    while True:
        page = deployment.ask("cloudformation", "describe_stack_events", StackName=deployment.stack, **more)
        reasons += [event.get("ResourceStatusReason", "") for event in page["StackEvents"]]
        if not (token := page.get("NextToken")):
            break
        more = {"NextToken": token}
    assert not [reason for reason in reasons if "FAILURE" in reason]
    signalled = {reason.split()[-1] for reason in reasons if "SUCCESS signal with UniqueId" in reason}
    nodes = [*deployment.instances("master"), *deployment.instances("worker")]
    assert len(signalled) >= len(nodes)  # Earlier tests may have replaced some.


def test_spot_workers_disk_has_the_clusters_key(deployment: Deployment, record_property: Record) -> None:
    workers = {
        each["InstanceId"]: each.get("InstanceLifecycle", "on demand") for each in deployment.instances("worker")
    }
    attached = [{"Name": "attachment.instance-id", "Values": list(workers)}]
    volumes = deployment.ask("ec2", "describe_volumes", Filters=attached)["Volumes"]
    record_property("lifecycles", sorted(workers.values()))
    assert {volume["Attachments"][0]["InstanceId"] for volume in volumes} == set(workers)
    assert all(volume["Encrypted"] for volume in volumes)
    spot = [each for each in volumes if workers[each["Attachments"][0]["InstanceId"]] == "spot"]
    needs(spot and spot[0].get("KmsKeyId"), "spot=true and kms_key=create")
    key = deployment.ask("kms", "describe_key", KeyId=spot[0]["KmsKeyId"])["KeyMetadata"]
    assert (key["KeyManager"], key["Enabled"]) == ("CUSTOMER", True)


def efa_interfaces(deployment: Deployment) -> int:
    """Return how many EFA interfaces the workers' instance type has."""
    kind = deployment.instances("worker")[0]["InstanceType"]
    (described,) = deployment.ask("ec2", "describe_instance_types", InstanceTypes=[kind])["InstanceTypes"]
    return int(described["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0))


def test_workers_have_an_interface_for_each_network_card(deployment: Deployment, record_property: Record) -> None:
    wanted = efa_interfaces(deployment)
    for worker in deployment.instances("worker"):
        found = worker["NetworkInterfaces"]
        cards = sorted(each["Attachment"].get("NetworkCardIndex", 0) for each in found)
        kinds = [each.get("InterfaceType", "interface") for each in found]
        record_property("interfaces", f"{worker['InstanceType']}: cards {cards}, {kinds}")
        assert cards == sorted(set(cards)) and cards[0] == 0
        needs(wanted, "a type with EFA, as --aws-set worker_instance_type=p5.48xlarge")
        assert sum(kind.startswith("efa") for kind in kinds) == wanted


def test_ranks_may_lock_memory(deployment: Deployment, tmp_path: Path, record_property: Record) -> None:
    (tmp_path / "limits.py").write_text(LIMITS)
    program = ("--payload", str(tmp_path), "--entry", "limits.py", "--launcher", "plain", "--ranks-per-node", "1")
    bounds = ("--restarts", "0", "--max-hours", str(PROBE_HOURS))
    try:
        output = deployment.fab("train", *program, "--nodes", "1", "--skip-preflight", *bounds, "--yes").stdout
    except subprocess.TimeoutExpired:
        deployment.fab("stop", "--yes", check=False)  # Later tests need the worker.
        raise
    found = [line for line in output.splitlines() if "memlock" in line]
    record_property("limits", found)
    assert len(found) == 1, output
    needs(efa_interfaces(deployment), "a type with EFA")
    assert "memlock -1 -1" in output


def test_status_checks_need_no_detailed_monitoring(deployment: Deployment, record_property: Record) -> None:
    group = deployment.outputs()["WorkerGroupName"]

    def points() -> Any:
        now = datetime.datetime.now(datetime.UTC)
        return deployment.ask(
            "cloudwatch", "get_metric_statistics", Namespace="AWS/EC2", MetricName="StatusCheckFailed",
            Dimensions=[{"Name": "AutoScalingGroupName", "Value": group}], Period=60, Statistics=["Maximum"],
            StartTime=now - datetime.timedelta(hours=1), EndTime=now,
        )["Datapoints"]  # fmt: skip

    found = eventually(points, timeout_s=METRICS_S)
    record_property("status checks", len(found))
    assert {point["Maximum"] for point in found} == {0.0}
    assert {each["Monitoring"]["State"] for each in deployment.instances("worker")} == {"disabled"}


def test_alarms_with_fill_are_evaluated(deployment: Deployment, record_property: Record) -> None:
    def evaluated() -> list[dict[str, Any]]:
        alarms = deployment.ask("cloudwatch", "describe_alarms", AlarmNamePrefix=deployment.stack)["MetricAlarms"]
        filled = [each for each in alarms if "FILL(" in json.dumps(each.get("Metrics", []))]
        assert filled
        return [] if any(each["StateValue"] == "INSUFFICIENT_DATA" for each in filled) else filled

    found = eventually(evaluated, timeout_s=METRICS_S)
    record_property("alarms", [(each["StateValue"], each.get("StateReason", "")) for each in found])
    assert {each["StateValue"] for each in found} == {"OK"}


def test_nodes_reach_their_bucket_and_packages_by_a_foreign_endpoint(
    deployment: Deployment, node: dict[str, tuple[int, str]], record_property: Record
) -> None:
    vpc = deployment.instances("master")[0]["VpcId"]
    of_vpc = [{"Name": "vpc-id", "Values": [vpc]}]
    endpoints = deployment.ask("ec2", "describe_vpc_endpoints", Filters=of_vpc)["VpcEndpoints"]
    for_s3 = [each for each in endpoints if each["ServiceName"].endswith(".s3")]
    record_property("policies", [each.get("PolicyDocument", "") for each in for_s3])
    bucket = deployment.outputs()["BucketName"]
    listing = ("aws", "s3api", "list-objects-v2", "--max-keys", "1", "--bucket", bucket, "--prefix", "runs/")
    run(deployment, "--master", "--", *listing)
    own = {"Key": "deepcdk:cluster", "Value": deployment.stack}
    needs([each for each in for_s3 if own not in each.get("Tags", [])], "a VPC (vpc_id) whose S3 endpoint has a policy")
    assert node["packages"][0] == 0, node["packages"][1]


@pytest.mark.destroys
def test_fab_down_does_not_wait_for_the_notice_of_lifecycle_hooks(
    deployment: Deployment, request: pytest.FixtureRequest, record_property: Record
) -> None:
    group = deployment.outputs()["WorkerGroupName"]
    hooks = deployment.ask("autoscaling", "describe_lifecycle_hooks", AutoScalingGroupName=group)["LifecycleHooks"]
    notice_s = max((hook["HeartbeatTimeout"] for hook in hooks), default=0)
    trial = request.config.stash.get(account.TRIAL, None)
    needs(trial and notice_s >= LONG_NOTICE_S, f"--aws-set termination_notice_s={LONG_NOTICE_S}")
    instances = {each["InstanceId"] for each in deployment.instances("worker")}
    account.ignore_signals()
    assert trial is not None and trial.destroy() == []
    recent = deployment.ask("autoscaling", "describe_scaling_activities", IncludeDeletedGroups=True, MaxRecords=100)
    seconds = {
        each["Description"].split()[3]: (each["EndTime"] - each["StartTime"]).total_seconds()
        for each in recent["Activities"]
        if each["AutoScalingGroupName"] == group and each["Description"].startswith("Terminating EC2 instance: ")
    }
    record_property("seconds of each termination", seconds)
    assert instances <= seconds.keys()
    assert max(seconds[name] for name in instances) < notice_s
