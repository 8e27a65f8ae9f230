"""Instances have the properties of their launch template."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, nodes
from localcloud.api.cloud import Cloud


def test_only_its_group_can_terminate_protected_instance(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    group = stacks.physical(stacks.create(nodes(2, data={"DisableApiTermination": True})), "Nodes")
    first, second = (instance.id for instance in cloud.snapshot().instances)
    with pytest.raises(ClientError, match="OperationNotPermitted"):
        client("ec2").terminate_instances(InstanceIds=[first])
    assert len(cloud.snapshot().instances) == 2
    client("autoscaling").terminate_instance_in_auto_scaling_group(
        InstanceId=second, ShouldDecrementDesiredCapacity=True
    )
    assert [instance.id for instance in cloud.snapshot().instances] == [first]
    client("autoscaling").set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    assert cloud.snapshot().instances == ()


@pytest.mark.parametrize(
    ("mappings", "size"),
    [
        ([], 8),
        ([{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100}}], 100),
    ],
)
def test_host_has_the_volume_of_its_template(
    cloud: Cloud, stacks: Stacks, mappings: list[dict[str, Any]], size: int
) -> None:
    stacks.create(nodes(1, data={"BlockDeviceMappings": mappings} if mappings else {}))
    assert [instance.volume_gib for instance in cloud.snapshot().instances] == [size]
