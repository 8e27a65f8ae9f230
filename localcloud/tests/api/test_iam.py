"""Only a role in an instance profile can be removed from it, and AWS managed policies exist."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from api.templates import Client


def test_role_outside_of_profile_cannot_be_removed_from_it(client: Client) -> None:
    iam = client("iam")
    iam.create_role(RoleName="runner", AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName="nodes")
    with pytest.raises(ClientError, match=r"\(NoSuchEntity\).*The role with name runner cannot be found"):
        iam.remove_role_from_instance_profile(InstanceProfileName="nodes", RoleName="runner")
    iam.add_role_to_instance_profile(InstanceProfileName="nodes", RoleName="runner")
    iam.remove_role_from_instance_profile(InstanceProfileName="nodes", RoleName="runner")
    assert iam.get_instance_profile(InstanceProfileName="nodes")["InstanceProfile"]["Roles"] == []


def test_only_existing_aws_policies_can_be_attached(client: Client) -> None:
    iam = client("iam")
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument="{}")
    iam.attach_role_policy(RoleName="reader", PolicyArn="arn:aws:iam::aws:policy/ReadOnlyAccess")
    attached = iam.list_attached_role_policies(RoleName="reader")["AttachedPolicies"]
    assert [each["PolicyName"] for each in attached] == ["ReadOnlyAccess"]
    with pytest.raises(ClientError, match="does not exist or is not attachable"):
        iam.attach_role_policy(RoleName="reader", PolicyArn="arn:aws:iam::aws:policy/Everything")
