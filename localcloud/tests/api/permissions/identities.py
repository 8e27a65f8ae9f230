"""Users and roles with a test's policies, and clients with their credentials."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from api.templates import Client, connect
from localcloud.api.cloud import ACCOUNT, Cloud

Statement = Mapping[str, Any]
_numbers = itertools.count(1)


def document(*statements: Statement) -> str:
    """Return a policy with these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(action: str | list[str], resource: str | list[str] = "*", **more: Any) -> Statement:
    """Return a statement that allows an action. `more` are its other elements."""
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action: str | list[str], resource: str | list[str] = "*", **more: Any) -> Statement:
    """Return a statement that denies an action. `more` are its other elements."""
    return {"Effect": "Deny", "Action": action, "Resource": resource, **more}


def trust(service: str) -> str:
    """Return a trust policy for a service."""
    return document({"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"})


class Identities:
    """Factory of users and roles, and of clients with their credentials."""

    def __init__(self, cloud: Cloud, endpoint: str, client: Client) -> None:
        self._cloud, self._endpoint, self._client = cloud, endpoint, client

    def user(self, *statements: Statement) -> Client:
        """Create a user with these statements; return a function that creates the user's client of a service."""
        name = f"user{next(_numbers)}"
        iam = self._client("iam")
        iam.create_user(UserName=name)
        if statements:
            iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=document(*statements))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return self.clients(key["AccessKeyId"], key["SecretAccessKey"])

    def role(self, *statements: Statement, service: str = "ec2.amazonaws.com", **more: Any) -> str:
        """Create a role with these statements, which `service` can assume; return its name."""
        name = f"role{next(_numbers)}"
        iam = self._client("iam")
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust(service), **more)
        if statements:
            iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=document(*statements))
        return name

    def session(self, role: str, name: str = "i-0123456789abcdef0") -> Client:
        """Start a session of a role; return a function that creates the session's client of a service."""
        given = self._cloud.role_credentials(role, name)
        return self.clients(given["AccessKeyId"], given["SecretAccessKey"], given["Token"])

    def clients(self, key: str, secret: str, token: str | None = None) -> Client:
        """Return a function that creates a client of a service with these credentials."""
        return functools.partial(connect, self._endpoint, key=key, secret=secret, token=token)


def refusal(error: ClientError) -> tuple[str, int, str]:
    """Return the code, status and message of an error."""
    found: Any = error.response
    return found["Error"]["Code"], found["ResponseMetadata"]["HTTPStatusCode"], found["Error"]["Message"]


def assumed(role: str, session: str = "i-0123456789abcdef0") -> str:
    """Return the ARN of a session of a role."""
    return f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/{session}"
