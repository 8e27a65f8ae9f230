"""What IAM refuses of roles: a boundary or a principal that does not exist, and policies that are too long."""

from __future__ import annotations

import re
from typing import Any, Final

from moto.iam import models
from moto.iam.exceptions import LimitExceededException, MalformedPolicyDocument, NotFoundException

from localcloud.api.iam.documents import missing_principals
from localcloud.api.monkeypatch import check_first

_LONGEST_TRUST: Final = 2048
"""Characters without blanks: the quota Role trust policy length, by default."""
_LONGEST_INLINE: Final = 10_240
"""Characters without blanks: the quota of all inline policies of a role together."""


def apply() -> None:
    """Correct moto."""
    check_first(models.IAMBackend, "create_role", _check_role)
    check_first(models.IAMBackend, "update_assume_role_policy", lambda iam, name, document: _check_trust(iam, document))
    check_first(models.IAMBackend, "put_role_policy", _check_inline)
    check_first(models.IAMBackend, "put_role_permissions_boundary", lambda iam, name, arn: _check_boundary(iam, arn))


def _check_inline(iam: Any, role_name: str, policy_name: str, document: str) -> None:
    try:
        role = iam.get_role(role_name)
    except NotFoundException:
        return  # moto refuses it itself
    together = {**role.policies, policy_name: document}
    if sum(len(re.sub(r"\s", "", each)) for each in together.values()) > _LONGEST_INLINE:
        raise LimitExceededException(f"Maximum policy size of {_LONGEST_INLINE} bytes exceeded for role {role_name}")


def _check_role(iam: Any, role_name: str, document: str, path: str, boundary: str | None, *_: Any, **__: Any) -> None:
    _check_trust(iam, document)
    _check_boundary(iam, boundary)


def _check_trust(iam: Any, document: str) -> None:
    if len(re.sub(r"\s", "", document)) > _LONGEST_TRUST:
        raise LimitExceededException(f"Cannot exceed quota for ACLSizePerRole: {_LONGEST_TRUST}")
    for arn in missing_principals(iam, iam.account_id, document):
        raise MalformedPolicyDocument(f'Invalid principal in policy: "AWS":"{arn}"')


def _check_boundary(iam: Any, arn: str | None) -> None:
    if not arn or not iam.policy_arn_regex.match(arn):
        return  # moto refuses another form itself
    try:
        iam.get_policy(arn)
    except NotFoundException:
        raise NotFoundException(f"Scope ARN: {arn} does not exist or is not attachable.") from None
