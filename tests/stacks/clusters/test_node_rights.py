"""The nodes' rights are enough for what their programs call, and none of them is too much.

A cluster with all that grants something is deployed on the embedded cloud, in this process, and the calls of the boot,
the runs and the agents are made with the credentials of each role. Then every statement is taken away, and every action
and every resource of it, one at a time: each time a call must be refused.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from localcloud.api.cloud import Cloud
from localcloud.api.loopback import acting_as
from localcloud.api.permissions.request import Signature
from localcloud.sessions.service import REQUIRED_ACTIONS
from stacks.config import CLUSTER_TAG, MASTER, ROLE_TAG, RUNS_PREFIX, WORKER, ClusterConfig, LimitId
from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.policies import listed
from tests.stacks.clusters.synthesis import Inspected, synthesise
from tests.waiting import eventually

INSTANCE: Final = "i-0123456789abcdef0"
BOUNDARY: Final = "boundary"
_DENIED: Final = ("AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")
_PART: Final = 5 * 1024 * 1024
STACK: Final = "everything"
# All but what the embedded cloud does not have, which grants the nodes nothing.
_LEFT_OUT: Final = ("fsx_", "vpc_endpoints", "flow_logs", "ssh_cidr")
RICH: Final[dict[str, Any]] = {
    **{key: value for key, value in CLUSTERS["everything"].values.items() if not key.startswith(_LEFT_OUT)},
    "ssh_access": "session-manager",
    # Of a bucket in both lists the right to read is granted twice.
    "checkpoint_buckets": ("checkpoints", "other.checkpoints"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One role on the deployed cluster, and what its programs call."""

    cloud: Cloud
    kind: str
    config: ClusterConfig
    physical: Mapping[str, str]
    """Physical ids by logical id."""

    @property
    def role(self) -> str:
        """Return the name of the role."""
        wanted = {MASTER: "RolesMaster", WORKER: "RolesWorkers"}[self.kind]
        (name,) = (value for id, value in self.physical.items() if id.startswith(wanted) and "Policy" not in id)
        return name

    @property
    def key_parameter(self) -> str:
        """Return the name of the parameter with the key by which the workers admit the master."""
        (found,) = (value for id, value in self.physical.items() if id.startswith("RolesAdmittedKey"))
        return found

    @property
    def handover_parameter(self) -> str:
        """Return the name of the parameter with the digest of what a master leaves to the next one."""
        (found,) = (value for id, value in self.physical.items() if id.startswith("RolesHandover"))
        return found

    def instance(self, role: str) -> str:
        """Return the id of an instance of a role of this cluster."""
        tags = {f"tag:{CLUSTER_TAG}": STACK, f"tag:{ROLE_TAG}": role}
        with acting_as(None):
            pages = self._client("ec2").describe_instances(
                Filters=[{"Name": name, "Values": [value]} for name, value in tags.items()]
            )
        return str(pages["Reservations"][0]["Instances"][0]["InstanceId"])

    def calls(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield each call with its name."""
        yield from self._boot()
        yield from self._agent()
        for bucket in self.config.data_buckets:
            yield f"list {bucket}", partial(self._s3.list_objects_v2, Bucket=bucket, Prefix="x/")
            yield f"read from {bucket}", partial(self._s3.get_object, Bucket=bucket, Key="there")
        for bucket in self.config.checkpoint_buckets if self.kind == WORKER else ():  # the ranks write them
            yield f"list checkpoints in {bucket}", partial(self._s3.list_objects_v2, Bucket=bucket)
            yield f"read a checkpoint in {bucket}", partial(self._s3.get_object, Bucket=bucket, Key="there")
            yield f"keep a checkpoint in {bucket}", partial(self._s3.put_object, Bucket=bucket, Key="new", Body=b"")
            yield f"remove a checkpoint in {bucket}", partial(self._s3.delete_object, Bucket=bucket, Key="new")
            yield f"break off an upload to {bucket}", partial(self._break_off, bucket)
        if self.kind == MASTER:
            yield from self._archive()
            stop = {"PolicyName": self.physical[LimitId.POLICY], "MetricValue": 1.0, "BreachThreshold": 0.0}
            publish, (topic,) = self._client("sns").publish, self._topics
            yield "tell of a run", lambda: publish(TopicArn=topic, Subject="one", Message="ended")
            yield "end the workers", lambda: self._client("autoscaling").execute_policy(**stop)

    def _boot(self) -> Iterator[tuple[str, Callable[[], object]]]:
        group = next(id for id in self.physical if id.startswith(("MasterASG", "WorkersASG", "Master", "Workers")))
        signal = self._client("cloudformation").signal_resource
        asked = {"StackName": STACK, "LogicalResourceId": group, "UniqueId": INSTANCE, "Status": "SUCCESS"}
        yield "signal the end of the boot", lambda: signal(**asked)
        ssm, key = self._client("ssm"), self.key_parameter
        if self.kind == MASTER:
            written = {"Name": key, "Type": "String", "Value": "ssh-ed25519 AAAA 10.0.0.1", "Overwrite": True}
            yield "give the workers its key", lambda: ssm.put_parameter(**written)
            left = {"Name": self.handover_parameter, "Type": "String", "Value": "0" * 64, "Overwrite": True}
            yield "leave something to its successor", lambda: ssm.put_parameter(**left)
            yield "read what its predecessor left", lambda: ssm.get_parameter(Name=self.handover_parameter)
            console = self._client("ec2").get_console_output
            yield "read a worker's console", lambda: console(InstanceId=self.instance(WORKER))
        else:
            yield "read the master's key", lambda: ssm.get_parameter(Name=key)
        for action in REQUIRED_ACTIONS if self.kind == MASTER else ():  # the workers are reached through the master
            yield f"connect to Session Manager: {action}", partial(self._require, action)

    def _require(self, action: str) -> None:
        if self.cloud.denied_actions(self.role, INSTANCE, (action,)):
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": action}}, action)

    def _agent(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the calls of the CloudWatch agent."""
        (parameter,) = (value for id, value in self.physical.items() if f"{self.kind.capitalize()}Agent" in id)
        yield "read the agent's configuration", lambda: self._client("ssm").get_parameter(Name=parameter)
        groups = ("NodeLogs", "RunLogs") if self.kind == MASTER else ("NodeLogs",)
        logs = self._client("logs")
        for group in (self.physical[each] for each in groups):
            stream = {"logGroupName": group, "logStreamName": f"{INSTANCE}/boot"}
            yield f"look for a stream in {group}", partial(logs.describe_log_streams, logGroupName=group)
            yield f"create a stream in {group}", partial(logs.create_log_stream, **stream)
            events = [{"timestamp": 1, "message": "one"}]
            yield f"write to {group}", partial(logs.put_log_events, **stream, logEvents=events)
        data = [{"MetricName": "cpu", "Value": 1.0}]
        put = self._client("cloudwatch").put_metric_data
        yield "send metrics", lambda: put(Namespace=f"deepcdk/{STACK}", MetricData=data)

    def _archive(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the calls of `aws s3 sync`: it lists the prefix, and puts objects whole or in parts."""
        bucket, key = self.physical["RunBucket"], f"{RUNS_PREFIX}one/result.json"
        yield "list a run's copy", lambda: self._s3.list_objects_v2(Bucket=bucket, Prefix=f"{RUNS_PREFIX}one/")
        yield "copy a file of a run", lambda: self._s3.put_object(Bucket=bucket, Key=key, Body=b"{}")
        yield "copy a large file of a run", lambda: self._put_in_parts(bucket, f"{RUNS_PREFIX}one/checkpoint")

    def _put_in_parts(self, bucket: str, key: str) -> None:
        which = {"Bucket": bucket, "Key": key}
        which["UploadId"] = self._s3.create_multipart_upload(**which)["UploadId"]
        tag = self._s3.upload_part(**which, PartNumber=1, Body=bytes(_PART))["ETag"]
        self._s3.complete_multipart_upload(**which, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})

    def _break_off(self, bucket: str) -> None:
        upload = self.cloud.loopback.client("s3").create_multipart_upload(Bucket=bucket, Key="new")["UploadId"]
        self._s3.abort_multipart_upload(Bucket=bucket, Key="new", UploadId=upload)

    @property
    def _topics(self) -> list[str]:
        return [value for id, value in self.physical.items() if id.startswith("ObservabilityAlarmsTopic")]

    @property
    def _s3(self) -> Any:
        return self._client("s3")

    def _client(self, service: str) -> Any:
        return self.cloud.loopback.client(service)

    def refused(self) -> list[str]:
        """Make the calls as this node; return the names of those that were refused."""
        given = self.cloud.role_credentials(self.role, INSTANCE)
        caller = self.cloud.caller(Signature(access_key=given["AccessKeyId"], token=given["Token"]))
        with acting_as(caller):
            return [name for name, call in self.calls() if _is_refused(call)]

    def policies(self) -> dict[str, dict[str, Any]]:
        """Return the documents of the role's policies by name."""
        iam = self._client("iam")
        names = iam.list_role_policies(RoleName=self.role)["PolicyNames"]
        return {name: iam.get_role_policy(RoleName=self.role, PolicyName=name)["PolicyDocument"] for name in names}

    def put(self, name: str, document: Mapping[str, Any]) -> None:
        """Replace a policy; one without statements is taken away."""
        iam = self._client("iam")
        if document["Statement"]:
            iam.put_role_policy(RoleName=self.role, PolicyName=name, PolicyDocument=json.dumps(document))
        else:
            iam.delete_role_policy(RoleName=self.role, PolicyName=name)


def _is_refused(call: Callable[[], object]) -> bool:
    """Return whether a call is refused for want of a right; any other answer means that it was allowed."""
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"] in _DENIED
    return False


@pytest.fixture(scope="module")
def deployed() -> Iterator[tuple[Cloud, ClusterConfig, dict[str, str]]]:
    """Deploy a cluster that has every kind of statement."""
    config = ClusterConfig(**RICH)
    cloud = Cloud()
    cloud.loopback.client("iam").create_policy(
        PolicyName=BOUNDARY,
        PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
        ),
    )
    cloud.loopback.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Type="String", Value="32")
    cloud.loopback.client("ec2").create_key_pair(KeyName=config.key_name, KeyType="ed25519")
    s3 = cloud.loopback.client("s3")
    for bucket in {*config.data_buckets, *config.checkpoint_buckets}:
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="there", Body=b"1")
    s3.create_bucket(Bucket="templates")
    s3.put_object(
        Bucket="templates", Key="one", Body=json.dumps(_without_signals(synthesise(config).document)).encode()
    )
    formation = cloud.loopback.client("cloudformation")
    formation.create_stack(
        StackName=STACK, TemplateURL="https://templates.s3.amazonaws.com/one", Capabilities=["CAPABILITY_IAM"]
    )

    def settled() -> str | None:
        status = str(formation.describe_stacks(StackName=STACK)["Stacks"][0]["StackStatus"])
        return None if status.endswith("_IN_PROGRESS") else status

    assert eventually(settled) == "CREATE_COMPLETE", [
        each.get("ResourceStatusReason")
        for each in formation.describe_stack_events(StackName=STACK)["StackEvents"]
        if "FAILED" in each["ResourceStatus"]
    ]
    found = [
        each
        for page in formation.get_paginator("list_stack_resources").paginate(StackName=STACK)
        for each in page["StackResourceSummaries"]
    ]
    yield cloud, config, {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found}
    cloud.close()


def _without_signals(document: dict[str, Any]) -> dict[str, Any]:
    """Return a template whose groups wait for no node: there are none here."""
    found = copy.deepcopy(document)
    for resource in found["Resources"].values():
        resource.pop("CreationPolicy", None)
    return found


@pytest.fixture(params=[MASTER, WORKER])
def node(request: pytest.FixtureRequest, deployed: tuple[Cloud, ClusterConfig, dict[str, str]]) -> Node:
    cloud, config, physical = deployed
    return Node(cloud=cloud, kind=request.param, config=config, physical=physical)


def narrowed(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a policy without one statement, without one action, and without one resource, for each, with what went."""
    statements = document["Statement"]
    for number, statement in enumerate(statements):
        rest = [*statements[:number], *statements[number + 1 :]]
        yield f"statement {statement}", {**document, "Statement": rest}
        for key in ("Action", "Resource"):
            several = listed(statement[key])
            for each in several if len(several) > 1 else ():
                smaller = {**statement, key: [other for other in several if other != each]}
                yield f"{key} {each} of {statement}", {**document, "Statement": [*rest, smaller]}


def test_a_node_may_do_what_its_programs_do(node: Node) -> None:
    assert node.refused() == []


def test_every_statement_action_and_resource_is_needed(node: Node) -> None:
    needless, tried = [], 0
    for name, document in node.policies().items():
        for gone, smaller in narrowed(document):
            node.put(name, smaller)
            refused = node.refused()
            node.put(name, document)
            tried += 1
            if not refused:
                needless.append(gone)
    assert tried > 10
    assert needless == []


def test_nothing_else_is_allowed_to_a_node(node: Node) -> None:
    given = node.cloud.role_credentials(node.role, INSTANCE)
    caller = node.cloud.caller(Signature(access_key=given["AccessKeyId"], token=given["Token"]))
    client, bucket = node.cloud.loopback.client, node.physical["RunBucket"]
    others: list[Callable[[], object]] = [
        lambda: client("s3").get_object(Bucket=bucket, Key=f"{RUNS_PREFIX}one/result.json"),
        lambda: client("s3").list_objects_v2(Bucket=bucket),
        lambda: client("s3").put_object(Bucket=bucket, Key="elsewhere", Body=b""),
        lambda: client("s3").delete_object(Bucket=bucket, Key=f"{RUNS_PREFIX}one/result.json"),
        lambda: client("cloudwatch").put_metric_data(Namespace="AWS/EC2", MetricData=[{"MetricName": "a", "Value": 1}]),
        lambda: client("cloudformation").describe_stacks(StackName=STACK),
        lambda: client("iam").list_roles(),
        lambda: client("ec2").get_console_output(InstanceId=node.instance(MASTER)),
        lambda: client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="1", Overwrite=True),
    ]
    if node.kind == WORKER:
        forged = {"Name": node.key_parameter, "Value": "ssh-ed25519 AAAA 10.0.0.9", "Overwrite": True}
        others += [
            lambda: client("ssm").put_parameter(**forged),
            lambda: client("ssm").delete_parameter(Name=node.key_parameter),
            lambda: client("ssm").put_parameter(**(forged | {"Name": node.handover_parameter})),
            lambda: client("ssm").get_parameter(Name=node.handover_parameter),
            lambda: client("ec2").get_console_output(InstanceId=node.instance(WORKER)),
        ]
    with acting_as(caller):
        assert all(_is_refused(call) for call in others)


def test_no_cluster_grants_its_nodes_an_action_that_is_not_tried(
    deployed: tuple[Cloud, ClusterConfig, dict[str, str]], inspected: Callable[[str], Inspected]
) -> None:
    cloud, config, physical = deployed
    nodes = [Node(cloud=cloud, kind=kind, config=config, physical=physical) for kind in (MASTER, WORKER)]
    tried = {action for node in nodes for document in node.policies().values() for action in actions(document)}
    for name in CLUSTERS:
        template = inspected(name).template
        granted = {
            action
            for policy in template.of("AWS::IAM::Policy").values()
            if "Roles" in str(policy["Roles"])
            for action in actions(policy["PolicyDocument"])
        }
        assert granted <= tried, name


def actions(document: Mapping[str, Any]) -> set[str]:
    """Return the actions of a policy."""
    return {action for statement in document["Statement"] for action in listed(statement["Action"])}
