"""boto3 clients whose requests stay in the process, for this package's own calls to the API that it serves.

These calls are trusted and never denied. Calls within `acting_as` need the caller's permissions instead.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import botocore.session
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from werkzeug.test import EnvironBuilder, run_wsgi_app

from localcloud.api.permissions.caller import CALLER, TRUSTED, Caller
from localcloud.snapshot import REGION

ACCESS_KEY: Final = "AKIAEMBEDDEDCLOUD000"
"""Access key that identifies this package's own requests."""

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

# No server listens there. The handler below answers before a connection is opened.
_ENDPOINT = "http://loopback.invalid"

_acting: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("acting", default=None)


@contextlib.contextmanager
def acting_as(caller: Caller | None) -> Iterator[None]:
    """Within a block, require a caller's permissions for this thread's requests. None makes the requests trusted."""
    token = _acting.set(caller)
    try:
        yield
    finally:
        _acting.reset(token)


class _Raw(io.BytesIO):
    """A response body in the form that botocore expects from urllib3."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


class Loopback:
    """Factory of clients for one region. Clients are reused."""

    def __init__(self, application: WsgiApp) -> None:
        self._application = application
        self._session = botocore.session.Session()
        self._session.set_credentials(ACCESS_KEY, "embedded")
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return the client of a service (`ec2`, `autoscaling`, ...). It raises ClientError, and never retries."""
        if service not in self._clients:
            client = self._session.create_client(
                service,
                region_name=REGION,
                endpoint_url=_ENDPOINT,
                config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}, parameter_validation=True),
            )
            send: Callable[..., Any] = self._send  # The stubs type handlers without a result; this one returns one.
            client.meta.events.register("before-send", send)
            self._clients[service] = client
        return self._clients[service]

    def _send(self, request: AWSPreparedRequest, **_event: Any) -> AWSResponse:
        """Answer botocore's request with the application, as trusted or with the acting caller's permissions."""
        body = request.body or b""
        data = bytes(body) if isinstance(body, bytes | bytearray) else body if isinstance(body, str) else body.read()
        given: Iterable[tuple[str, Any]] = request.headers.items()  # botocore encodes most of the values.
        # With awscrt the signer adds Host. moto would mistake the first part of this address for a bucket.
        named = [(name, value) for name, value in given if name.lower() != "host"]
        headers = [(k, v.decode() if isinstance(v, bytes) else str(v)) for k, v in named]
        path, _, query = request.url[len(_ENDPOINT) :].partition("?")
        builder = EnvironBuilder(
            path=path or "/", query_string=query, method=request.method, headers=headers, data=data
        )
        environ = builder.get_environ()
        caller = _acting.get()
        environ |= {CALLER: caller} if caller else {TRUSTED: True}
        environ["RAW_URI"] = request.url[len(_ENDPOINT) :] or "/"
        content, status, reply_headers = run_wsgi_app(self._application, environ)
        fields: Any = dict(reply_headers)  # Any mapping works, although the stubs require http.client's.
        return AWSResponse(request.url, int(status.split(" ", 1)[0]), fields, _Raw(b"".join(content)))
