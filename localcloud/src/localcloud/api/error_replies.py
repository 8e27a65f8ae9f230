"""Error replies in the protocol of each service, and API outages."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote
from xml.sax.saxutils import escape

# `KEY/20261120/us-east-1/ec2/aws4_request`, in the Authorization header or, quoted, in a presigned URL.
_SCOPE = re.compile(r"Credential=[^/\s]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")

_UNAVAILABLE: Final = "ServiceUnavailable"
"""Error code of every service (its page "Common errors"). SDKs retry calls after it."""

Reply = tuple[int, list[tuple[str, str]], bytes]


class WrongMotoError(RuntimeError):
    """The installed moto is not the version that the embedded cloud corrects.

    Carries `wanted`, a version, and `found`: another version, or `with NAME` or `without NAME` for a name that differs.
    """

    def __init__(self, found: str, wanted: str) -> None:
        self.found, self.wanted = found, wanted
        super().__init__(
            f"moto {found} is installed, but the embedded cloud patches moto {wanted}; "
            f"install moto[server]=={wanted}, or adapt localcloud/api and run its tests"
        )


def bug_message(error: str) -> str:
    """Return the message for a client after a bug of the embedded cloud itself. `error` describes the failure."""
    return f"The embedded cloud has a bug ({error}). Its log has the details; to print it: python -m localcloud logs"


def service_of(environ: Mapping[str, Any]) -> tuple[str, str]:
    """Return the service and region from a request's signature; empty strings if it is not signed.

    The signatures of CloudFormation's helper scripts and of S3's older presigned URLs contain no region, so it is "".
    """
    authorization = str(environ.get("HTTP_AUTHORIZATION", ""))
    if authorization.startswith("CFN_V1 "):
        return "cloudformation", ""
    query = unquote(str(environ.get("QUERY_STRING", "")))
    match = _SCOPE.search(authorization) or _SCOPE.search(query)
    if match is None and "AWSAccessKeyId=" in query:  # presigned in the older format, which only S3 still accepts
        return "s3", ""
    return (match["service"], match["region"]) if match else ("", "")


def is_json(environ: Mapping[str, Any]) -> bool:
    """Return whether a request's service uses JSON. S3 does not, even if an uploaded object is JSON."""
    service, _ = service_of(environ)
    if environ.get("HTTP_X_AMZ_TARGET") or service in ("elasticfilesystem", "lambda"):
        return True
    return service != "s3" and "json" in str(environ.get("CONTENT_TYPE", ""))


def reply(environ: Mapping[str, Any], code: str, message: str, status: int = 400) -> Reply:
    """Return an error reply (status, headers, body) in the protocol of the request's service."""
    service, _ = service_of(environ)
    if is_json(environ):
        body = json.dumps({"__type": code, "message": message, "Message": message})
        return status, [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)], body.encode()
    text = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if service == "ec2":
        body = f"<Response><Errors><Error>{text}</Error></Errors><RequestID>embedded</RequestID></Response>"
    elif service in ("s3", ""):
        body = f"<Error>{text}<RequestId>embedded</RequestId></Error>"
    else:
        body = f"<ErrorResponse><Error><Type>Sender</Type>{text}</Error><RequestId>embedded</RequestId></ErrorResponse>"
    return status, [("Content-Type", "text/xml")], b'<?xml version="1.0" encoding="UTF-8"?>\n' + body.encode()


class Outage:
    """A temporary outage of the API: a share of the clients' calls fails. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._random = random.Random(0)  # noqa: S311  # no secret
        self._period = (0.0, 0.0)
        """Share of the calls, and end time."""
        self._lock = threading.Lock()

    def begin(self, share: float, seconds: float) -> None:
        """Make a share (0 to 1) of the calls fail for some seconds. The previous outage ends."""
        with self._lock:
            self._period = (share, self._clock() + seconds)

    def refusal(self, environ: Mapping[str, Any], service: str, action: str) -> Reply | None:
        """Return the error reply with status 503 if an outage affects a call, otherwise None. Chosen at random."""
        with self._lock:
            share, ends_at = self._period
            if self._clock() >= ends_at or self._random.random() >= share:
                return None
        return reply(environ, _UNAVAILABLE, f"{service} is not available at the moment.", 503)
