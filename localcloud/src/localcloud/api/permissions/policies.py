"""The policies that apply to a call: the caller's, its boundary, and the resource's."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from localcloud.api.iam import listed
from localcloud.api.permissions.caller import Caller
from localcloud.api.permissions.request import UndecidableError

Policy = Mapping[str, Any]


class Policies:
    """Reads policies from the account's state."""

    def __init__(self, backend: Callable[[str], Any]) -> None:
        self._backend = backend

    def identity(self, caller: Caller) -> list[Policy]:
        """Return the policies of a user or role, each with name and policy. A user's groups are included.

        The list is empty for a user or role that was deleted.
        """
        holder = self._holder(caller)
        holders = [holder]
        if not caller.is_role:
            holders += [group for group in self._backend("iam").groups.values() if holder in group.users]
        return [each for one in holders if one is not None for each in _held(one)]

    def boundary(self, caller: Caller) -> list[Policy] | None:
        """Return the permissions boundary of a user or role as a list with one policy, or None without a boundary.

        Raises UndecidableError if the boundary's policy does not exist.
        """
        holder = self._holder(caller)
        arn = getattr(holder, "permissions_boundary_arn", None) or getattr(holder, "permissions_boundary", None)
        if isinstance(arn, Mapping):
            arn = arn.get("PermissionsBoundaryArn")
        if not arn:
            return None
        policy = self._backend("iam").managed_policies.get(arn)
        if policy is None:
            raise UndecidableError(
                f"the permissions boundary {arn} of {caller.owner} does not exist; create this policy, or remove the "
                "boundary"
            )
        return [_managed(policy)]

    def _holder(self, caller: Caller) -> Any:
        """Return moto's user or role of a caller, or None if it was deleted."""
        iam = self._backend("iam")
        if caller.is_role:
            return next((role for role in iam.roles.values() if role.name == caller.name), None)
        return iam.users.get(caller.name)

    def resource(self, action: str, arn: str) -> Policy | None:
        """Return the policy of a resource of S3, KMS, SNS or SQS, or a role's trust policy; None if there is none.

        A trust policy only applies to the action sts:AssumeRole.
        """
        service, _, _, name = arn.split(":", 5)[2:] if arn.count(":") >= 5 else ("", "", "", "")
        match service:
            case "s3":
                holder = self._backend("s3").buckets.get(name.partition("/")[0])
            case "kms":
                holder = self._backend("kms").keys.get(name.removeprefix("key/"))
            case "sns":
                holder = self._backend("sns").topics.get(arn)
            case "sqs":
                holder = self._backend("sqs").queues.get(name)
            case "iam" if action.lower() == "sts:assumerole":
                return self.trust(arn)
            case _:
                return None
        return _parsed(holder.policy) if holder is not None else None

    def trust(self, role_arn: str) -> Policy | None:
        """Return the trust policy of a role, or None for an unknown role."""
        role = next((each for each in self._backend("iam").roles.values() if each.arn == role_arn), None)
        return _parsed(role.assume_role_policy_document) if role is not None else None


def _held(holder: Any) -> Iterator[Policy]:
    """Yield the inline and managed policies of a user, role or group."""
    inline = holder.policies
    for name, document in inline.items() if isinstance(inline, Mapping) else ():
        yield {"name": name, "policy": _parsed(document)}
    for policy in holder.managed_policies.values():
        yield _managed(policy)


def _managed(policy: Any) -> Policy:
    """Return a managed policy's ARN (as its name) and the document of its default version."""
    document = next(each.document for each in policy.versions if each.version_id == policy.default_version_id)
    return {"name": policy.arn, "policy": _parsed(document)}


def _parsed(document: Any) -> Policy | None:
    """Parse a policy, which moto stores as text, bytes or a mapping. Returns None if it is empty."""
    if isinstance(document, bytes):
        document = document.decode()
    parsed = json.loads(document) if isinstance(document, str) and document else document
    return parsed or None


def condition_keys(policy: Policy | None, action: str) -> Iterator[tuple[str, str]]:
    """Yield the statement (its Sid or number from 1) and the key of every condition that applies to an action."""
    for number, statement in enumerate(listed((policy or {}).get("Statement", []))):
        if not _about(statement, action):
            continue
        for tests in statement.get("Condition", {}).values():
            for key in tests:
                yield str(statement.get("Sid") or number + 1), str(key)


def _about(statement: Mapping[str, Any], action: str) -> bool:
    """Return whether a statement's Action or NotAction applies to an action. Wildcards are allowed, case is ignored."""
    named = listed(statement.get("Action", statement.get("NotAction", [])))
    matches = any(fnmatch.fnmatchcase(action.lower(), str(each).lower()) for each in named)
    return matches if "Action" in statement else not matches
