"""Roles as the template says, with the boundary that an account may demand."""

from __future__ import annotations

import json
from typing import Any

from api.templates import Client, Stacks

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"},
    ],
}


def role(**more: Any) -> dict[str, Any]:
    return {"Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": TRUST, **more}}}


def test_a_permissions_boundary_is_kept_changed_and_taken_away(client: Client, stacks: Stacks) -> None:
    def boundary() -> str:
        found = client("iam").get_role(RoleName=stacks.physical(name, "Role"))["Role"]
        return str(found.get("PermissionsBoundary", {}).get("PermissionsBoundaryArn", ""))

    for policy in ("", "2"):
        client("iam").create_policy(
            PolicyName=f"{BOUNDARY.rsplit('/', 1)[1]}{policy}",
            PolicyDocument=json.dumps(
                {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
            ),
        )
    options: dict[str, Any] = {"options": {"Capabilities": ["CAPABILITY_IAM"]}}
    name = stacks.create(role(PermissionsBoundary=BOUNDARY), **options)
    assert boundary() == BOUNDARY
    stacks.update(name, role(PermissionsBoundary=f"{BOUNDARY}2"), **options)
    assert boundary() == f"{BOUNDARY}2"
    stacks.update(name, role(), **options)
    assert boundary() == ""
