"""AWS's own policies are there when they are asked for."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from api.templates import Client


def test_a_policy_of_aws_can_be_attached_and_an_invented_one_cannot(client: Client) -> None:
    iam = client("iam")
    iam.create_role(RoleName="reader", AssumeRolePolicyDocument="{}")
    iam.attach_role_policy(RoleName="reader", PolicyArn="arn:aws:iam::aws:policy/ReadOnlyAccess")
    attached = iam.list_attached_role_policies(RoleName="reader")["AttachedPolicies"]
    assert [each["PolicyName"] for each in attached] == ["ReadOnlyAccess"]
    with pytest.raises(ClientError, match="does not exist or is not attachable"):
        iam.attach_role_policy(RoleName="reader", PolicyArn="arn:aws:iam::aws:policy/Everything")
