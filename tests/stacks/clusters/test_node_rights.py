"""The nodes' roles allow the calls that the nodes' programs make, and nothing else.

The permissions are read from the committed template of the cluster that grants everything. Tests on the embedded cloud,
which enforces permissions, check how the programs' calls map to actions.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from stacks.node_roles import AGENT_ACTIONS
from tests.stacks.clusters import snapshots
from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.policies import listed
from tests.stacks.clusters.synthesis import Inspected

SSM: Final = "arn:${AWS::Partition}:ssm:${AWS::Region}:${AWS::AccountId}:parameter/"
BUCKET: Final = "arn:${AWS::Partition}:s3:::"
GROUP: Final = (
    "arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:1:autoScalingGroupName/"
)
CONSOLE: Final = "arn:${AWS::Partition}:ec2:${AWS::Region}:${AWS::AccountId}:instance/i-1"
OF_A_WORKER: Final = {"aws:ResourceTag/deepcdk:cluster": "everything", "aws:ResourceTag/deepcdk:role": "worker"}
THROUGH_S3: Final = {"kms:ViaService": "s3.${AWS::Region}.${AWS::URLSuffix}"}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of the AWS API: an action, its resource, and the values of condition keys."""

    action: str
    resource: str
    context: Mapping[str, str] = dataclasses.field(default_factory=dict)


def both(role: str, *logs: str) -> list[Call]:
    """Return the calls of every node: it signals its stack, and its CloudWatch agent sends logs and metrics."""
    return [
        Call("cloudformation:SignalResource", "${AWS::StackId}"),
        Call("ssm:GetParameter", f"{SSM}${{Telemetry{role}Agent~}}"),
        *(
            Call(f"logs:{action}", f"${{{group}.Arn}}")
            for group in logs
            for action in ("CreateLogStream", "DescribeLogStreams", "PutLogEvents")
        ),
        Call("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "deepcdk/everything"}),
        # `fab stage-data s3://...` reads data_buckets, and nodes look for Horovod's wheel in the wheelhouse's bucket.
        *(Call("s3:ListBucket", f"{BUCKET}{name}") for name in ("records", "other.records", "wheels")),
        *(Call("s3:GetObject", f"{BUCKET}{name}/key") for name in ("records", "other.records", "wheels")),
    ]


CALLS: Final[dict[str, list[Call]]] = {
    "Master": [
        *both("Master", "NodeLogs", "RunLogs"),
        Call("ssm:PutParameter", f"{SSM}${{RolesAdmittedKey~}}"),
        Call("ssm:PutParameter", f"{SSM}${{RolesHandover~}}"),
        Call("ssm:GetParameter", f"{SSM}${{RolesHandover~}}"),
        Call("ec2:GetConsoleOutput", CONSOLE, OF_A_WORKER),
        # `aws s3 sync` lists the runs and uploads large files in parts, which needs kms:Decrypt.
        Call("s3:ListBucket", "${RunBucket.Arn}", {"s3:prefix": "runs/one/"}),
        Call("s3:PutObject", "${RunBucket.Arn}/runs/one/result.json"),
        Call("kms:GenerateDataKey", "${StorageKey.Arn}", THROUGH_S3),
        Call("kms:Decrypt", "${StorageKey.Arn}", THROUGH_S3),
        Call("sns:Publish", "${ObservabilityAlarmsTopic~}"),
        Call(
            "autoscaling:ExecutePolicy",
            f"{GROUP}${{WorkerGroup}}",
        ),
        Call("autoscaling:SetInstanceHealth", f"{GROUP}${{WorkerGroup}}"),
        Call("autoscaling:DescribeAutoScalingGroups", "*"),
        Call("autoscaling:DescribeScalingActivities", "*"),
    ],
    "Workers": [
        *both("Worker", "NodeLogs"),
        Call("ssm:GetParameter", f"{SSM}${{RolesAdmittedKey~}}"),
        # Ranks store checkpoints in checkpoint_buckets.
        *(Call("s3:ListBucket", f"{BUCKET}{name}") for name in ("records", "checkpoints")),
        *(
            Call(f"s3:{action}", f"{BUCKET}{name}/key")
            for name in ("records", "checkpoints")
            for action in ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload")
        ),
    ],
}
FORBIDDEN: Final = [
    *(Call("autoscaling:SetInstanceHealth", f"{GROUP}{name}") for name in ("${MasterGroup}", "elsewhere")),
    *(
        Call(f"autoscaling:{action}", f"{GROUP}${{WorkerGroup}}")
        for action in ("SetDesiredCapacity", "UpdateAutoScalingGroup", "TerminateInstanceInAutoScalingGroup")
    ),
    *(Call(f"s3:{action}", "${RunBucket.Arn}/runs/one/result.json") for action in ("GetObject", "DeleteObject")),
    Call("s3:PutObject", "${RunBucket.Arn}/elsewhere"),
    Call("s3:ListBucket", "${RunBucket.Arn}", {"s3:prefix": ""}),
    Call("kms:Decrypt", "${StorageKey.Arn}", {"kms:ViaService": "ec2.${AWS::Region}.${AWS::URLSuffix}"}),
    Call("cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": "AWS/EC2"}),
    Call("ec2:GetConsoleOutput", CONSOLE, {**OF_A_WORKER, "aws:ResourceTag/deepcdk:role": "master"}),
    *(Call(f"ssm:{action}", f"{SSM}cdk-bootstrap/hnb659fds/version") for action in ("GetParameter", "PutParameter")),
    *(Call(f"s3:{action}", f"{BUCKET}elsewhere/key") for action in ("GetObject", "PutObject")),
]
FORBIDDEN_TO_WORKERS: Final = [
    call
    for call in CALLS["Master"]
    if ("${Roles" in call.resource or call.action.startswith("autoscaling:")) and call not in CALLS["Workers"]
]


@dataclasses.dataclass(frozen=True)
class Right:
    """One action of a statement on one of its resources."""

    action: str
    resource: str
    conditions: Mapping[str, Mapping[str, str]]

    def allows(self, call: Call) -> bool:
        """Return whether this allows a call. A * matches anything, even in conditions other than StringLike."""
        wanted = {key: value for keys in self.conditions.values() for key, value in keys.items()}
        matches = [(call.resource, self.resource)]
        matches += [(call.context.get(key, ""), value) for key, value in wanted.items()]
        return call.action == self.action and all(fnmatch.fnmatchcase(*each) for each in matches)


@functools.cache
def rights(role: str) -> list[Right]:
    """Return the permissions of a role in the committed template."""
    document = yaml.safe_load(snapshots.path("everything").read_text(encoding="utf-8"))
    granted = list(statements(document["Resources"], f"Roles{role}~"))
    assert {statement["Effect"] for statement in granted} == {"Allow"}
    return [
        Right(action, text(resource), statement.get("Condition", {}))
        for statement in granted
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
    ]


def statements(resources: Mapping[str, Any], role: str) -> Iterator[dict[str, Any]]:
    """Yield the statements of the policies of a role, given by its logical id."""
    for item in resources.values():
        if item["Type"] == "AWS::IAM::Policy" and {"Ref": role} in item["Properties"]["Roles"]:
            yield from item["Properties"]["PolicyDocument"]["Statement"]
        elif item["Type"] == "AWS::IAM::Role":
            assert "Policies" not in item["Properties"]


def text(resource: Any) -> str:
    """Return a reference as it appears in the text of the snapshot."""
    if isinstance(resource, str):
        return resource
    return f"${{{resource['Ref'] if 'Ref' in resource else '.'.join(resource['Fn::GetAtt'])}}}"


@pytest.mark.parametrize("role", CALLS)
def test_each_call_is_allowed_and_each_permission_is_used(role: str) -> None:
    granted, calls = rights(role), CALLS[role]
    assert [call for call in calls if not any(right.allows(call) for right in granted)] == []
    assert [right for right in granted if not any(right.allows(call) for call in calls)] == []


@pytest.mark.parametrize("role", CALLS)
def test_node_has_no_other_permission(role: str) -> None:
    forbidden = FORBIDDEN + (FORBIDDEN_TO_WORKERS if role == "Workers" else [])
    assert [call for call in forbidden if any(right.allows(call) for right in rights(role))] == []


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_cluster_grants_its_nodes_other_actions(name: str, inspected: Callable[[str], Inspected]) -> None:
    resources = inspected(name).template.resources
    sessions = CLUSTERS[name].config().ssh_access == "session-manager"
    for role, calls in CALLS.items():
        (id,) = (id for id in resources if id.startswith(f"Roles{role}") and resources[id]["Type"] == "AWS::IAM::Role")
        granted = {action for each in statements(resources, id) for action in listed(each["Action"])}
        known = {call.action for call in calls} | (set(AGENT_ACTIONS) if sessions and role == "Master" else set())
        assert granted <= known, role
