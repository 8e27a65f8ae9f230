"""AWS's error codes and texts for denied calls, by the service's protocol.

The texts are from "Troubleshoot access denied error messages" in the IAM user guide. The codes are from "Common errors"
in each service's API reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from localcloud.api import error_replies
from localcloud.api.error_replies import Reply
from localcloud.api.permissions.caller import Caller
from localcloud.api.permissions.evaluator import Decision
from localcloud.api.permissions.needs import Need

_KINDS: Final = {
    "identity": "identity-based policy",
    "resource": "resource-based policy",
    "pb": "permissions boundary",
    "session": "session policy",
}
_INVALID_TOKEN: Final = "The security token included in the request is invalid."  # noqa: S105  # an answer
_EXPIRED: Final = "The security token included in the request is expired"
_EC2_INVALID: Final = "AWS was not able to validate the provided access credentials"
_S3_UNKNOWN: Final = "The AWS Access Key Id you provided does not exist in our records."
# Code, text and status for invalid credentials, by protocol.
_CREDENTIALS: Final[Mapping[str, Mapping[str, tuple[str, str, int]]]] = {
    "ec2": {
        "key": ("AuthFailure", _EC2_INVALID, 401),
        "token": ("AuthFailure", _EC2_INVALID, 401),
        "expired": ("RequestExpired", "Request has expired.", 400),
        "none": ("AuthFailure", _EC2_INVALID, 401),
    },
    "s3": {
        "key": ("InvalidAccessKeyId", _S3_UNKNOWN, 403),
        "token": ("InvalidToken", "The provided token is malformed or otherwise invalid.", 400),
        "expired": ("ExpiredToken", "The provided token has expired.", 400),
        "none": ("AccessDenied", "Access Denied", 403),
    },
    "json": {
        "key": ("UnrecognizedClientException", _INVALID_TOKEN, 400),
        "token": ("UnrecognizedClientException", _INVALID_TOKEN, 400),
        "expired": ("ExpiredTokenException", _EXPIRED, 400),
        "none": ("MissingAuthenticationTokenException", "Missing Authentication Token", 400),
    },
    "query": {
        "key": ("InvalidClientTokenId", _INVALID_TOKEN, 403),
        "token": ("InvalidClientTokenId", _INVALID_TOKEN, 403),
        "expired": ("ExpiredToken", _EXPIRED, 403),
        "none": ("MissingAuthenticationToken", "Request is missing Authentication Token", 403),
    },
}
# Services of the query protocol with a different code.
_DENIED: Final = {"sns": "AuthorizationError"}


def credentials(environ: Mapping[str, Any], kind: str) -> Reply:
    """Return the error reply for credentials that are unknown ("key", "token"), "expired", or missing ("none")."""
    code, message, status = _CREDENTIALS[_protocol(environ)][kind]
    return error_replies.reply(environ, code, message, status)


def denied(environ: Mapping[str, Any], caller: Caller, need: Need, decision: Decision) -> Reply:
    """Return the error reply for a call that a caller's policies deny, with AWS's text for the denied `need`."""
    return refused(environ, sentence(caller, need, decision))


def refused(environ: Mapping[str, Any], text: str) -> Reply:
    """Return the error reply for a denied call with this text, in the form of the service's protocol."""
    service, _ = error_replies.service_of(environ)
    match _protocol(environ):
        case "ec2":
            return error_replies.reply(
                environ, "UnauthorizedOperation", f"You are not authorized to perform this operation. {text}", 403
            )
        case "json":
            # REST services answer 403, others 400.
            status = 400 if environ.get("HTTP_X_AMZ_TARGET") else 403
            return error_replies.reply(environ, "AccessDeniedException", text, status)
        case _:
            return error_replies.reply(environ, _DENIED.get(service, "AccessDenied"), text, 403)


def sentence(caller: Caller, need: Need, decision: Decision) -> str:
    """Return AWS's text for a denial: caller, action, resource, and kind of policy."""
    kind = _KINDS.get(decision.kind, decision.kind)
    if need.action == "sts:AssumeRole" and decision.kind == "resource":
        kind = "role trust policy"
    where = f" on resource: {need.resource}" if need.resource != "*" else ""
    article = "an" if kind[0] in "aeiou" else "a"
    why = (
        f"with an explicit deny in {article} {kind}"
        if decision.explicit
        else f"because no {kind} allows the {need.action} action"
    )
    return f"User: {caller.arn} is not authorized to perform: {need.action}{where} {why}"


def _protocol(environ: Mapping[str, Any]) -> str:
    """Return a request's protocol, a key of `_CREDENTIALS`."""
    service, _ = error_replies.service_of(environ)
    if service in ("ec2", "s3"):
        return service
    return "json" if error_replies.is_json(environ) else "query" if service else "s3"
