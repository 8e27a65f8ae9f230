"""What a role's policies allow."""

from __future__ import annotations

import json
from typing import Any

from localcloud.api.cloud import Cloud
from tests.localcloud.api.templates import Client

ACTIONS = ("ssmmessages:OpenDataChannel", "ssm:UpdateInstanceInformation")


def role(client: Client, name: str, *statements: dict[str, Any]) -> str:
    iam = client("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
    for number, statement in enumerate(statements):
        document = json.dumps({"Version": "2012-10-17", "Statement": statement})
        iam.put_role_policy(RoleName=name, PolicyName=f"p{number}", PolicyDocument=document)
    return name


def test_only_what_a_statement_allows_is_allowed(cloud: Cloud, client: Client) -> None:
    one = {"Effect": "Allow", "Action": ACTIONS[0], "Resource": "*"}
    assert cloud.denied_actions(role(client, "bare"), ACTIONS) == list(ACTIONS)
    assert cloud.denied_actions(role(client, "half", one), ACTIONS) == [ACTIONS[1]]
    assert cloud.denied_actions(role(client, "whole", {**one, "Action": [*ACTIONS]}), ACTIONS) == []
    assert (
        cloud.denied_actions(role(client, "wild", {**one, "Action": ["ssmmessages:*", "ssm:Update*"]}), ACTIONS) == []
    )
    assert cloud.denied_actions("nobody", ACTIONS) == list(ACTIONS)


def test_what_is_denied_anywhere_is_denied(cloud: Cloud, client: Client) -> None:
    allow = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    deny = {"Effect": "Deny", "Action": "ssmmessages:*", "Resource": "*"}
    assert cloud.denied_actions(role(client, "torn", allow, deny), ACTIONS) == [ACTIONS[0]]


def test_a_managed_policy_counts(cloud: Cloud, client: Client) -> None:
    iam = client("iam")
    statement = {"Effect": "Allow", "Action": [*ACTIONS], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": statement})
    arn = iam.create_policy(PolicyName="managed", PolicyDocument=document)["Policy"]["Arn"]
    iam.attach_role_policy(RoleName=role(client, "managed"), PolicyArn=arn)
    assert cloud.denied_actions("managed", ACTIONS) == []
