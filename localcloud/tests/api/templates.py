"""Small templates, a driver that creates stacks from them, and clients of a cloud."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import boto3
from botocore.config import Config

from localcloud.api.cloud import REGION, Cloud
from localcloud.laptop import ACCESS_KEY_ID
from refusals import templates
from refusals.templates import ref, resource
from waiting import eventually

Client = Callable[[str], Any]

_numbers = itertools.count(1)


@contextlib.contextmanager
def served(cloud: Cloud) -> Iterator[str]:
    """Serve a cloud's API on an ephemeral port within a block; yield its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        cloud.serve(listener)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            cloud.close()


def connect(
    endpoint: str,
    service: str,
    *,
    key: str = ACCESS_KEY_ID,
    secret: str = "secret",
    token: str | None = None,
    region: str = REGION,
    check_parameters: bool = True,
) -> Any:
    """Return a client of a service that never repeats a call, with the laptop's credentials unless others are given."""
    session: Any = boto3.Session(key, secret, token, region_name=region)
    style: Any = {"addressing_style": "path"}
    config = Config(retries={"max_attempts": 0}, s3=style, parameter_validation=check_parameters)
    return session.client(service, endpoint_url=endpoint, config=config)


class Stacks:
    """Driver that creates, updates and inspects stacks from small templates."""

    def __init__(self, client: Client) -> None:
        self._cf = client("cloudformation")
        self.names: list[str] = []

    def create(self, resources: dict[str, Any], *, wait: bool = True, **more: Any) -> str:
        """Create a stack with these resources; return its name."""
        name = f"stack{next(_numbers)}"
        self.names.append(name)
        self._cf.create_stack(StackName=name, TemplateBody=_body(resources, more), **_options(more))
        if wait:
            self.settle(name)
        return name

    def create_named(self, name: str, template: dict[str, Any], **options: Any) -> str:
        """Create a stack with this name from a whole template; return its last status."""
        self.names.append(name)
        self._cf.create_stack(StackName=name, TemplateBody=json.dumps(template), **options)
        return self.settle(name)

    def update_named(self, name: str, template: dict[str, Any]) -> str:
        """Update a stack to a whole template; return its last status."""
        self._cf.update_stack(StackName=name, TemplateBody=json.dumps(template))
        return self.settle(name)

    def update(self, name: str, resources: dict[str, Any], *, wait: bool = True, **more: Any) -> None:
        """Update a stack to these resources."""
        self._cf.update_stack(StackName=name, TemplateBody=_body(resources, more), **_options(more))
        if wait:
            self.settle(name)

    def delete(self, name: str) -> str:
        """Delete a stack; return its last status."""
        found = self._cf.describe_stacks(StackName=name)["Stacks"][0]["StackId"]
        self._cf.delete_stack(StackName=name)
        return self.settle(found)

    def describe(self, name: str) -> dict[str, Any]:
        """Return a stack's description."""
        found: dict[str, Any] = self._cf.describe_stacks(StackName=name)["Stacks"][0]
        return found

    def settle(self, name: str, timeout_s: float = 120.0) -> str:
        """Wait until no operation is in progress; return the status."""

        def settled() -> str | None:
            status: str = self.describe(name)["StackStatus"]
            return None if status.endswith("_IN_PROGRESS") else status

        return eventually(settled, timeout_s, f"an end of what stack {name} is doing")

    def physical(self, name: str, logical: str) -> str:
        """Return the physical id of a resource."""
        found = self._cf.describe_stack_resource(StackName=name, LogicalResourceId=logical)
        physical: str = found["StackResourceDetail"]["PhysicalResourceId"]
        return physical

    def reasons(self, name: str, logical: str = "") -> list[str]:
        """Return status and reason of a resource's events, or of all events of a stack, oldest first."""
        events = self._cf.describe_stack_events(StackName=name)["StackEvents"]
        return [
            f"{event['ResourceStatus']}: {event.get('ResourceStatusReason', '')}"
            for event in reversed(events)
            if logical in ("", event["LogicalResourceId"])
        ]

    def await_status(self, name: str, logical: str, status: str, timeout_s: float = 120.0) -> None:
        """Wait until a resource exists and has a status."""

        def come() -> bool:
            found = self._cf.describe_stack_resources(StackName=name, LogicalResourceId=logical)["StackResources"]
            return bool(found and found[0]["ResourceStatus"] == status and found[0].get("PhysicalResourceId"))

        eventually(come, timeout_s, f"{logical} of {name} as {status}")


def _body(resources: dict[str, Any], more: dict[str, Any]) -> str:
    sections = {key: value for key, value in more.items() if key in ("Parameters", "Outputs", "Conditions", "Mappings")}
    return json.dumps({"Resources": resources, **sections})


def _options(more: dict[str, Any]) -> dict[str, Any]:
    return dict(more.get("options", {}))


def network() -> dict[str, Any]:
    """Return a VPC with two subnets in two zones, and a security group."""
    found: dict[str, Any] = templates.network()["Resources"]
    return found


def nodes(count: int, *, data: dict[str, Any] | None = None, **attributes: Any) -> dict[str, Any]:
    """Return a network with an Auto Scaling group of `count` over both subnets, with these `attributes`."""
    return {
        **network(),
        "Template": resource(
            "EC2::LaunchTemplate",
            LaunchTemplateData={
                "ImageId": "ami-03cf127a",
                "InstanceType": "c5.large",
                "SecurityGroupIds": [{"Fn::GetAtt": ["Group", "GroupId"]}],
                "UserData": {"Fn::Base64": {"Fn::Sub": "#!/bin/sh\necho ${AWS::StackName}\n"}},
                **(data or {}),
            },
        ),
        "Nodes": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "MinSize": "0",
                "MaxSize": "64",
                "DesiredCapacity": str(count),
                "VPCZoneIdentifier": [ref("A"), ref("B")],
                "LaunchTemplate": {
                    "LaunchTemplateId": ref("Template"),
                    "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                },
            },
            **attributes,
        },
    }


def mixed(
    count: int, *types: str, base: int = 0, percent: int = 0, data: dict[str, Any] | None = None, **attributes: Any
) -> dict[str, Any]:
    """Return `nodes` with a mixed instances policy for these types: `base` and `percent` of the rest on-demand."""
    resources = nodes(count, data=data, **attributes)
    properties = resources["Nodes"]["Properties"]
    properties["MixedInstancesPolicy"] = {
        "InstancesDistribution": {
            "OnDemandBaseCapacity": base,
            "OnDemandPercentageAboveBaseCapacity": percent,
            "SpotAllocationStrategy": "capacity-optimized",
        },
        "LaunchTemplate": {
            "LaunchTemplateSpecification": properties.pop("LaunchTemplate"),
            **({"Overrides": [{"InstanceType": each} for each in types]} if types else {}),
        },
    }
    return resources
