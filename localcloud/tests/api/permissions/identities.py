"""Users and roles with policies of the test's own, and clients with their credentials."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from api.templates import Client
from localcloud.api.cloud import ACCOUNT, REGION, Cloud

Statement = Mapping[str, Any]
_numbers = itertools.count(1)


def document(*statements: Statement) -> str:
    """Return a policy of these statements."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(action: str | list[str], resource: str | list[str] = "*", **more: Any) -> Statement:
    """Return a statement that allows; `more` are its other elements."""
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def deny(action: str | list[str], resource: str | list[str] = "*", **more: Any) -> Statement:
    """Return a statement that denies."""
    return {"Effect": "Deny", "Action": action, "Resource": resource, **more}


def trust(service: str) -> str:
    """Return a trust policy for a service."""
    return document({"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"})


class Identities:
    """Make users and roles, and clients that are they."""

    def __init__(self, cloud: Cloud, endpoint: str, client: Client) -> None:
        self._cloud, self._endpoint, self._client = cloud, endpoint, client

    def user(self, *statements: Statement) -> Client:
        """Return clients of a new user with these statements."""
        name = f"user{next(_numbers)}"
        iam = self._client("iam")
        iam.create_user(UserName=name)
        if statements:
            iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=document(*statements))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return self.clients(key["AccessKeyId"], key["SecretAccessKey"])

    def role(self, *statements: Statement, service: str = "ec2.amazonaws.com", **more: Any) -> str:
        """Create a role; return its name."""
        name = f"role{next(_numbers)}"
        iam = self._client("iam")
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust(service), **more)
        if statements:
            iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=document(*statements))
        return name

    def session(self, role: str, name: str = "i-0123456789abcdef0") -> Client:
        """Return clients of a session of a role."""
        given = self._cloud.role_credentials(role, name)
        return self.clients(given["AccessKeyId"], given["SecretAccessKey"], given["Token"])

    def clients(self, key: str, secret: str, token: str | None = None) -> Client:
        """Return a maker of clients with credentials, by service."""

        def of(service: str) -> Any:
            session: Any = boto3.Session(key, secret, token, region_name=REGION)
            style = Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"})
            return session.client(service, endpoint_url=self._endpoint, config=style)

        return of


def refusal(error: ClientError) -> tuple[str, int, str]:
    """Return code, status and words of a refusal."""
    found: Any = error.response
    return found["Error"]["Code"], found["ResponseMetadata"]["HTTPStatusCode"], found["Error"]["Message"]


def assumed(role: str, session: str = "i-0123456789abcdef0") -> str:
    """Return the ARN of a session of a role."""
    return f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/{session}"
