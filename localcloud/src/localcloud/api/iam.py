"""Corrections of IAM and STS, and functions that read policy documents.

A role or user must exist before a policy can name its ARN as a principal, because AWS stores its unique id.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from moto.iam import models
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.exceptions import LimitExceededException, MalformedPolicyDocument, NotFoundException
from moto.sts.responses import TokenResponse

from localcloud.api import eventual_consistency
from localcloud.api.loopback import ACCESS_KEY
from localcloud.api.monkeypatch import RefusalError, first

Document = Mapping[str, Any]

_ENTITY: Final = re.compile(r"arn:aws:iam::(?P<account>\d{12}):(?P<kind>role|user)/(?P<path>.+)")
_OF_AWS: Final = "arn:aws:iam::aws:policy/"
_EC2: Final = "ec2.amazonaws.com"
_MAX_TRUST: Final = 2048
"""Default of the quota "Role trust policy length", in characters without whitespace."""
_MAX_INLINE: Final = 10_240
"""Quota of all inline policies of a role together, in characters without whitespace."""


def statements(document: str | bytes | Document) -> list[Document]:
    """Return the statements of a policy (JSON, or parsed). Malformed statements are omitted.

    The list is empty if the whole policy is malformed.
    """
    try:
        found = json.loads(document) if isinstance(document, str | bytes) else document
    except ValueError:
        return []
    given = found.get("Statement", []) if isinstance(found, Mapping) else []
    return [each for each in listed(given) if isinstance(each, Mapping)]


def listed(value: Any) -> list[Any]:
    """Return a copy of a list, or a list with `value` as its only element if `value` is not a list."""
    return list(value) if isinstance(value, list) else [value]


def principals(statement: Document, kind: str = "AWS") -> list[str]:
    """Return a statement's principals of a kind, such as `AWS` or `Service`; none if it has no principals of this kind.

    `*` means everyone. If the whole Principal is `*`, the list contains only `*`, for every kind.
    """
    given = statement.get("Principal", {})
    return [str(each) for each in (listed(given.get(kind, [])) if isinstance(given, Mapping) else [given])]


def missing_principals(iam: Any, account: str, document: str | bytes | Document) -> Iterator[str]:
    """Yield the ARNs of this account's roles and users that a policy names but that do not exist."""
    for statement in statements(document):
        for arn in principals(statement):
            entity = _ENTITY.fullmatch(arn)
            if entity and entity["account"] == account:
                known = iam.roles if entity["kind"] == "role" else iam.users
                if all(each.arn != arn for each in known.values()):
                    yield arn


@first(TokenResponse, "assume_role")
def _check_assumption(responses: Any) -> None:
    """Reject a role that does not exist, is still propagating, or does not trust EC2. moto accepts any role.

    For an instance, this package requests the credentials itself. The role must then trust `ec2.amazonaws.com`, as on
    AWS, and may still be propagating. For clients, the gate checks the trust policy. The error is the same in all
    cases, as in STS.
    """
    arn = str(responses._get_param("RoleArn"))
    account = responses.current_account
    role = next((each for each in models.iam_backends[account]["aws"].roles.values() if each.arn == arn), None)
    service = _EC2 if responses.get_access_key() == ACCESS_KEY else ""
    propagating = not service and eventual_consistency.is_propagating(role)
    if role is None or propagating or (service and not trusts(role.assume_role_policy_document, service)):
        caller = service or f"arn:aws:iam::{account}:root"
        raise RefusalError(
            "AccessDenied", f"User: {caller} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        )


def trusts(document: str, service: str) -> bool:
    """Return whether a trust policy allows a service to assume the role. Conditions and Deny statements are ignored."""
    return any(
        statement.get("Effect") == "Allow"
        and {"sts:AssumeRole", "sts:*", "*"} & {*listed(statement.get("Action", []))}
        and service in principals(statement, "Service")
        for statement in statements(document)
    )


@first(models.IAMBackend, "remove_role_from_instance_profile")
def _check_membership(iam: Any, profile_name: str, role_name: str) -> None:
    """Reject the removal of a role that is not in the instance profile. moto would fail with an internal error."""
    if role_name not in [role.name for role in iam.get_instance_profile(profile_name).roles]:
        raise NotFoundException(f"The role with name {role_name} cannot be found.")


@first(models.IAMBackend, "attach_role_policy", "get_policy", "attach_user_policy", "attach_group_policy")
def _bring_in(iam: Any, policy_arn: str, *_: Any, **__: Any) -> None:
    """Load an AWS managed policy into moto at its first use. Loading all thousand takes longer than the whole start."""
    data = _policies_of_aws().get(policy_arn)
    if data is not None and policy_arn not in iam.managed_policies:
        policy = models.AWSManagedPolicy.from_data(data["name"], iam.account_id, iam.region_name, data)
        iam.managed_policies[policy.arn] = policy


@functools.cache
def _policies_of_aws() -> dict[str, dict[str, Any]]:
    """Return the data of AWS managed policies by ARN."""
    return {
        _OF_AWS + f"{data['Path'].strip('/')}/{name}".lstrip("/"): {**data, "name": name}
        for name, data in json.loads(aws_managed_policies_data).items()
    }


@first(models.IAMBackend, "put_role_policy")
def _check_inline(iam: Any, role_name: str, policy_name: str, document: str) -> None:
    try:
        role = iam.get_role(role_name)
    except NotFoundException:
        return  # moto rejects it itself
    together = {**role.policies, policy_name: document}
    if sum(len(re.sub(r"\s", "", each)) for each in together.values()) > _MAX_INLINE:
        raise LimitExceededException(f"Maximum policy size of {_MAX_INLINE} bytes exceeded for role {role_name}")


@first(models.IAMBackend, "create_role")
def _check_role(iam: Any, role_name: str, document: str, path: str, boundary: str | None, *_: Any, **__: Any) -> None:
    _check_trust(iam, role_name, document)
    _check_boundary(iam, role_name, boundary)


@first(models.IAMBackend, "update_assume_role_policy")
def _check_trust(iam: Any, role_name: str, document: str) -> None:
    if len(re.sub(r"\s", "", document)) > _MAX_TRUST:
        raise LimitExceededException(f"Cannot exceed quota for ACLSizePerRole: {_MAX_TRUST}")
    for arn in missing_principals(iam, iam.account_id, document):
        raise MalformedPolicyDocument(f'Invalid principal in policy: "AWS":"{arn}"')


@first(models.IAMBackend, "put_role_permissions_boundary")
def _check_boundary(iam: Any, role_name: str, arn: str | None) -> None:
    if not arn or not iam.policy_arn_regex.match(arn):
        return  # moto rejects other forms itself
    try:
        iam.get_policy(arn)
    except NotFoundException:
        raise NotFoundException(f"Scope ARN: {arn} does not exist or is not attachable.") from None
