"""Parsing of requests with AWS's own models: the service, the operation and its parameters."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

# Models whose name in boto3 differs from the service's name in signatures.
_MODELS: Final = {"elasticfilesystem": "efs", "monitoring": "cloudwatch", "servicequotas": "service-quotas"}
# `Credential=KEY/20261120/us-east-1/ec2/aws4_request`, in the header or, without its name, in a presigned URL.
_SCOPE: Final = re.compile(r"(?P<key>[^/\s=]+)/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")


class UnknownOperationError(Exception):
    """A request that matches no operation of its service, or cannot be parsed. Carries `service`."""

    def __init__(self, service: str, action: str) -> None:
        self.service = service
        super().__init__(f"The action {action} is not valid for this web service.")


class UndecidableError(Exception):
    """A call with unknown permissions, resources or conditions. It is denied."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """The claimed credentials of a request. The signature itself is not verified against the secret."""

    access_key: str
    token: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """A parsed request: service, operation and parameters."""

    service: str
    """The service's name in policies: the prefix of its actions."""
    operation: str
    """The operation's name in the API, such as `ListObjectsV2`."""
    params: Mapping[str, Any]
    address: str
    """The client's IP address, or "" for the cloud's own calls."""


def signature(environ: Mapping[str, Any]) -> Signature | None:
    """Return the credentials in a request's header or presigned URL, unverified, or None if it is not signed."""
    query = parse_qs(str(environ.get("QUERY_STRING", "")))
    header = str(environ.get("HTTP_AUTHORIZATION", ""))
    match = _SCOPE.search(header) or _SCOPE.search(query.get("X-Amz-Credential", [""])[0])
    token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN") or next(
        (given[0] for key, given in query.items() if key.lower() == "x-amz-security-token"), ""
    )
    if match is not None:
        return Signature(access_key=match["key"], token=str(token))
    older = query.get("AWSAccessKeyId")  # S3's older format, which boto3 still uses for presigned URLs
    return Signature(access_key=older[0], token=str(token)) if older else None


def read(environ: Mapping[str, Any], service: str) -> Call:
    """Parse a request to a service, whose name in signatures is `service`. The body of an upload is left out.

    Raises UnknownOperationError if the service or operation is unknown, or the request is malformed.
    """
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
