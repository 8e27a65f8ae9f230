"""boto3 clients whose requests never leave the process: how this package itself uses the API that it serves.

They are the cloud's own, which nothing refuses, but for what is done within `acting_as`: that needs a caller's rights.
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

ACCESS_KEY: Final = "AKIAEMBEDDEDCLOUD000"
"""By which the requests of this package are known from those of others."""

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

# Nothing listens there; the handler below answers before a connection is made.
_ENDPOINT = "http://loopback.invalid"

_acting: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("acting", default=None)


@contextlib.contextmanager
def acting_as(caller: Caller | None) -> Iterator[None]:
    """Have the requests of this thread need the rights of a caller; None: they are the cloud's own."""
    token = _acting.set(caller)
    try:
        yield
    finally:
        _acting.reset(token)


class _Raw(io.BytesIO):
    """A response body as urllib3 gives it to botocore."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


class Loopback:
    """Make clients for one region and keep them."""

    def __init__(self, application: WsgiApp, region: str) -> None:
        self._application = application
        self._region = region
        self._session = botocore.session.Session()
        self._session.set_credentials(ACCESS_KEY, "embedded")
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return the client of a service (`ec2`, `autoscaling`, ...)."""
        if service not in self._clients:
            client = self._session.create_client(
                service,
                region_name=self._region,
                endpoint_url=_ENDPOINT,
                config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}, parameter_validation=True),
            )
            send: Callable[..., Any] = self._send  # The stubs have no handler return anything; this one answers.
            client.meta.events.register("before-send", send)
            self._clients[service] = client
        return self._clients[service]

    def _send(self, request: AWSPreparedRequest, **_event: Any) -> AWSResponse:
        body = request.body or b""
        data = bytes(body) if isinstance(body, bytes | bytearray) else body if isinstance(body, str) else body.read()
        given: Iterable[tuple[str, Any]] = request.headers.items()  # botocore encodes most of the values.
        # With awscrt the signer adds Host, and moto would take the first part of this address for a bucket.
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
        fields: Any = dict(reply_headers)  # Any mapping does, though the stubs name http.client's alone.
        return AWSResponse(request.url, int(status.split(" ", 1)[0]), fields, _Raw(b"".join(content)))
