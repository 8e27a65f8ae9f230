"""Callers of the API: a user, a role session, a service on behalf of either, or an anonymous caller.

Signatures are not verified. An access key identifies its owner; a session also needs its token.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from localcloud.api.permissions.request import Signature
from localcloud.snapshot import ACCOUNT, REGION

CLOUDFORMATION: Final = "cloudformation.amazonaws.com"
CALLER: Final = "localcloud.caller"
"""Key of the caller in a request's WSGI environment. Clients cannot set it, because headers have other names."""
TRUSTED: Final = "localcloud.trusted"
"""Key in the WSGI environment of the embedded cloud's own requests."""


def is_internal(environ: Mapping[str, Any]) -> bool:
    """Return whether a request comes from the embedded cloud itself, possibly on behalf of a caller.

    Only valid before the gate, which stores the caller of every other request too.
    """
    return TRUSTED in environ or CALLER in environ


class UnknownCallerError(Exception):
    """Unknown or expired credentials. Carries `kind`: key, token or expired."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caller:
    """A principal that calls the API: a user or a role session."""

    arn: str
    """ARN of the user or of the role session."""
    owner: str
    """ARN of the user or role, whose policies apply."""
    name: str
    """Name of the user or role."""
    is_role: bool
    context: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Values of the condition keys that the principal determines, such as aws:userid."""
    session_policy: Mapping[str, Any] | None = None
    via: str = ""
    """The service that calls on behalf of this principal, or ""."""

    def through(self, service: str) -> Caller:
        """Return a copy of this caller for a call that a service makes on its behalf."""
        return dataclasses.replace(self, via=service)


class Callers:
    """Finds callers by their credentials."""

    def __init__(self, backend: Callable[[str], Any]) -> None:
        self._backend = backend

    def find(self, signature: Signature) -> Caller:
        """Return the caller with these credentials.

        Raises UnknownCallerError for unknown, inactive or expired credentials.
        """
        user = self._user(signature.access_key)
        if user is not None:
            return self._of_user(user)
        for session in reversed(self._backend("sts").assumed_roles):
            if session.access_key_id == signature.access_key:
                return self._of_session(session, signature.token)
        raise UnknownCallerError("key")

    def _user(self, access_key: str) -> Any:
        """Return the user with this access key, or None if the key is unknown or inactive."""
        for user in self._backend("iam").users.values():
            for key in user.access_keys:
                if key.access_key_id == access_key:
                    return user if key.status == "Active" else None
        return None

    def _of_user(self, user: Any) -> Caller:
        context = {"aws:userid": str(user.id), "aws:username": str(user.name), "aws:PrincipalType": "User"}
        return Caller(arn=user.arn, owner=user.arn, name=user.name, is_role=False, context=context)

    def _of_session(self, session: Any, token: str) -> Caller:
        from moto.core.utils import utcnow

        if token != session.session_token:
            raise UnknownCallerError("token")
        if utcnow() >= session.expiration:
            raise UnknownCallerError("expired")
        role = next((each for each in self._backend("iam").roles.values() if each.arn == session.role_arn), None)
        if role is None:
            raise UnknownCallerError("key")  # the role was deleted, and its sessions with it
        policy = json.loads(session.policy) if session.policy else None
        return self.of_role(role, session.session_name, policy)

    def of_role(self, role: Any, session_name: str, policy: Mapping[str, Any] | None = None) -> Caller:
        """Return the caller for a session of a role. `policy` is the session policy, if any.

        A session whose name starts with i- is an instance's. It has the condition key ec2:SourceInstanceARN.
        """
        context = {"aws:userid": f"{role.id}:{session_name}", "aws:PrincipalType": "AssumedRole"}
        if session_name.startswith("i-"):
            context["ec2:SourceInstanceARN"] = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{session_name}"
        return Caller(
            arn=f"arn:aws:sts::{ACCOUNT}:assumed-role/{role.name}/{session_name}",
            owner=role.arn,
            name=role.name,
            is_role=True,
            context=context,
            session_policy=policy,
        )
