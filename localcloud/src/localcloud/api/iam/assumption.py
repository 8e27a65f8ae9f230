"""AssumeRole: the role must exist and trust the caller; moto hands out credentials of any role.

The credentials of instances are fetched by this package itself, in the name of EC2: such a role must trust
`ec2.amazonaws.com`, as on AWS.
"""

from __future__ import annotations

from typing import Any, Final

from moto.core.exceptions import ServiceException
from moto.iam.models import iam_backends
from moto.sts.responses import TokenResponse

from localcloud.api import visibility
from localcloud.api.iam.documents import listed, principals, statements
from localcloud.api.loopback import ACCESS_KEY
from localcloud.api.monkeypatch import check_first

_EC2: Final = "ec2.amazonaws.com"


class AccessDeniedError(ServiceException):
    """Refuse a role to a caller, in the words of STS, which do not tell why."""

    def __init__(self, caller: str, role: str) -> None:
        super().__init__(
            "AccessDenied", f"User: {caller} is not authorized to perform: sts:AssumeRole on resource: {role}"
        )


def apply() -> None:
    """Correct moto."""
    check_first(TokenResponse, "assume_role", _check)


def _check(responses: Any) -> None:
    arn = str(responses._get_param("RoleArn"))
    account = responses.current_account
    iam = iam_backends[account]["aws"]
    caller = f"arn:aws:iam::{account}:root"
    role = next((each for each in iam.roles.values() if each.arn == arn), None)
    service = _EC2 if responses.get_access_key() == ACCESS_KEY else ""
    propagating = not service and visibility.is_propagating(role)
    if role is None or propagating or not trusts(role.assume_role_policy_document, account, service):
        raise AccessDeniedError(service or caller, arn)


def trusts(document: str, account: str, service: str = "") -> bool:
    """Return whether a trust policy allows a service, or without one the account's callers, to assume the role."""
    known = {"*", account, f"arn:aws:iam::{account}:root"}
    for statement in statements(document):
        allowed = statement.get("Effect") == "Allow" and {"sts:AssumeRole", "sts:*", "*"} & set(
            listed(statement.get("Action", []))
        )
        if allowed and (service in principals(statement, "Service") if service else known & set(principals(statement))):
            return True
    return False
