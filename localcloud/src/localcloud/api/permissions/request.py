"""A request read by AWS's own models: which operation of which service, with which parameters."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

# Names of services in signatures that differ from those of boto3's models.
_MODELS: Final = {"elasticfilesystem": "efs", "monitoring": "cloudwatch", "servicequotas": "service-quotas"}
# `Credential=KEY/20261120/us-east-1/ec2/aws4_request`, in the header or, without its name, in a presigned URL.
_SCOPE: Final = re.compile(r"(?P<key>[^/\s=]+)/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")


class UnknownOperationError(Exception):
    """Report a request that no operation of its service matches, or that cannot be read. Carries `service`."""

    def __init__(self, service: str, action: str) -> None:
        self.service = service
        super().__init__(f"The action {action} is not valid for this web service.")


class UndecidableError(Exception):
    """Report a call that cannot be decided, which is refused: of unknown permissions, resources or conditions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """Who says to have signed a request. The signature itself is not verified: the secret is not compared."""

    access_key: str
    token: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One request."""

    service: str
    """As policies call it: the prefix of its actions."""
    operation: str
    """As the API calls it: `ListObjectsV2`."""
    params: Mapping[str, Any]
    address: str
    """The IP address it came from; empty for one of the cloud's own."""


def signature(environ: Mapping[str, Any]) -> Signature | None:
    """Return who says to have signed a request, by header or presigned URL; None for an unsigned one."""
    query = parse_qs(str(environ.get("QUERY_STRING", "")))
    header = str(environ.get("HTTP_AUTHORIZATION", ""))
    match = _SCOPE.search(header) or _SCOPE.search(query.get("X-Amz-Credential", [""])[0])
    token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN") or next(
        (given[0] for key, given in query.items() if key.lower() == "x-amz-security-token"), ""
    )
    if match is not None:
        return Signature(access_key=match["key"], token=str(token))
    older = query.get("AWSAccessKeyId")  # S3's older way, in which boto3 still presigns
    return Signature(access_key=older[0], token=str(token)) if older else None


def read(environ: Mapping[str, Any], service: str) -> Call:
    """Read a request to a service, named as in signatures. Raises UnknownOperationError."""
    from botocore.exceptions import UnknownServiceError
    from moto.core.parse import PROTOCOL_PARSERS, RequestParserError
    from moto.core.request import Request, determine_request_protocol
    from moto.core.routing import get_service_router
    from moto.core.utils import get_service_model
    from werkzeug.exceptions import HTTPException

    body = environ["wsgi.input"].getvalue() if isinstance(environ.get("wsgi.input"), io.BytesIO) else b""
    request = Request({**environ, "wsgi.input": io.BytesIO(body)})
    name = _MODELS.get(service, service)
    try:
        model = get_service_model(name)
        operation, labels = get_service_router(name).match(request)
        parser = PROTOCOL_PARSERS[determine_request_protocol(model, request.content_type)](operation)
        params = parser.parse(
            {
                "method": request.method,
                "values": request.values,
                "headers": request.headers,
                "body": b"" if operation.has_streaming_input else request.data,
                "url_path": request.path,
                "url_params": labels,
            }
        )
    except (UnknownServiceError, HTTPException, NotImplementedError, RequestParserError, ValueError) as error:
        action = request.headers.get("X-Amz-Target") or request.values.get("Action") or request.path
        raise UnknownOperationError(service, str(action).rpartition(".")[2]) from error
    prefix = {"monitoring": "cloudwatch"}.get(service, service)
    return Call(service=prefix, operation=operation.name, params=params, address=str(environ.get("REMOTE_ADDR", "")))
