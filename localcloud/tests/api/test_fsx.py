"""Lustre file systems: invalid ones are rejected as by FSx, and an address is assigned and released."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from api.templates import Client, Stacks, network
from localcloud.api.cloud import Cloud
from localcloud.api.fsx import BadRequest, check
from refusals.templates import ref, resource

PORTS = [{"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988}]


@given(capacity=st.integers(min_value=-5000, max_value=20000))
def test_file_system_has_1200_gib_or_a_multiple_of_2400(capacity: int) -> None:
    values = {
        "file_system_type": "LUSTRE",
        "storage_capacity": capacity,
        "lustre_configuration": {"DeploymentType": "SCRATCH_2"},
    }
    if capacity == 1200 or (capacity > 0 and capacity % 2400 == 0):
        assert check(values) == {"DeploymentType": "SCRATCH_2"}
    else:
        with pytest.raises(BadRequest, match="StorageCapacity"):
            check(values)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"FileSystemType": "WINDOWS"}, "of the type WINDOWS"),
        ({"LustreConfiguration": {"DeploymentType": "SCRATCH_1"}}, "deployment type SCRATCH_1"),
        ({"LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}}, "125, 250, 500, 1000"),
        ({"LustreConfiguration": {"DeploymentType": "SCRATCH_2", "PerUnitStorageThroughput": 125}}, "must not be set"),
        ({"SubnetIds": ["subnet-0123456789abcdef0"]}, "does not exist"),
        ({"SubnetIds": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]}, "exactly one subnet"),
    ],
)
def test_invalid_file_systems_are_rejected(client: Client, change: dict[str, Any], reason: str) -> None:
    subnet = client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    values = {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": 1200,
        "SubnetIds": [subnet],
        "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
    }
    with pytest.raises(ClientError, match=reason):
        client("fsx").create_file_system(**{**values, **change})
    assert client("fsx").describe_file_systems()["FileSystems"] == []


def cluster() -> dict[str, Any]:
    """Return a network with a file system. Its security group allows traffic between the file servers."""
    group = {"Fn::GetAtt": ["Group", "GroupId"]}
    return {
        **network(),
        "Files": {
            "Type": "AWS::FSx::FileSystem",
            "DependsOn": "Rule",
            "Properties": {
                "FileSystemType": "LUSTRE",
                "StorageCapacity": 1200,
                "SubnetIds": [ref("A")],
                "SecurityGroupIds": [group],
                "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
            },
        },
        "Rule": resource("EC2::SecurityGroupIngress", GroupId=group, SourceSecurityGroupId=group, **PORTS[0]),
    }


def test_file_system_is_served_at_an_address_of_its_subnet(stacks: Stacks, client: Client, cloud: Cloud) -> None:
    name = stacks.create(cluster(), Outputs={"Name": {"Value": {"Fn::GetAtt": ["Files", "LustreMountName"]}}})
    assert stacks.describe(name)["StackStatus"] == "CREATE_COMPLETE", stacks.reasons(name, "Files")
    (system,) = client("fsx").describe_file_systems()["FileSystems"]
    assert system["Lifecycle"] == "AVAILABLE"
    assert system["VpcId"] == stacks.physical(name, "Vpc")
    assert stacks.describe(name)["Outputs"][0]["OutputValue"] == system["LustreConfiguration"]["MountName"]
    (target,) = [each for each in cloud.snapshot().mount_targets if each.service == "fsx"]
    assert target.file_system_id == system["FileSystemId"] == stacks.physical(name, "Files")
    assert target.port == 988
    assert target.subnet_id == stacks.physical(name, "A")
    assert target.group_ids == (stacks.physical(name, "Group"),)
    stacks.delete(name)
    assert client("fsx").describe_file_systems()["FileSystems"] == []
    assert [each for each in cloud.snapshot().mount_targets if each.service == "fsx"] == []


def test_deployment_type_cannot_be_changed(stacks: Stacks) -> None:
    resources = cluster()
    name = stacks.create(resources)
    resources["Files"]["Properties"]["LustreConfiguration"] = {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 125,
    }
    stacks.update(name, resources)
    assert stacks.describe(name)["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert any("cannot change from SCRATCH_2 to PERSISTENT_2" in reason for reason in stacks.reasons(name, "Files"))
