"""The WSGI application of the API. It answers internal errors with status 400, and reports changes of hosts.

It handles one request at a time, except requests to CloudFormation and Systems Manager, which have their own locks.
"""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import time
import traceback
from collections.abc import Callable, Container, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import run_wsgi_app

from localcloud.api import error_replies, eventual_consistency, failed_calls
from localcloud.api.permissions.caller import is_internal
from localcloud.snapshot import REGION as HOME_REGION

log = logging.getLogger("localcloud.api")

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

NOT_IMPLEMENTED: Final = "The embedded cloud does not implement"
"""Start of the error message for an AWS call that this cloud lacks. It is also logged."""
# Prefixes of the actions that change nothing.
_READING = ("Describe", "Get", "List", "Head", "Validate", "Lookup", "Search", "AssumeRole", "BatchGet")
# Services whose changes affect hosts and networks.
_WATCHED = ("ec2", "autoscaling", "elasticfilesystem", "fsx", "iam")


class Application:
    """Serves moto under one lock, and this package's own services, such as CloudFormation, outside of it."""

    def __init__(
        self,
        lock: threading.RLock,
        changed: Callable[[], None],
        mark: Callable[[], Callable[[], None]],
        refusal: Callable[[dict[str, Any]], error_replies.Reply | None],
        throttled: Callable[[dict[str, Any], str, str], error_replies.Reply | None] | None = None,
    ) -> None:
        self.lock = lock
        self.changed = changed
        self._mark = mark
        self._refusal = refusal
        """Takes a request; returns an error reply if policies deny it."""
        self._throttled = throttled
        """Takes a client's request, its service and action; returns an error reply if throttled. None disables it."""
        self.regions: Container[str] = ()
        """AWS's regions. Nodes are only in HOME_REGION; moto keeps separate state for each region."""
        self.own: dict[str, WsgiApp] = {}
        """Applications for services that moto does not serve here, by signing name."""
        self.elsewhere: WsgiApp | None = None
        """CloudFormation of all other regions, which never have stacks."""
        self.moto = _Moto(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request (WSGI): with an error if permissions, the region or throttling reject it.

        A failed call leaves nothing behind. After a successful change of hosts or networks, `changed` is called.
        """
        _read_body(environ)
        service, region = error_replies.service_of(environ)
        action = _action(environ)
        started = time.monotonic()
        is_client = not is_internal(environ)  # Before the gate changes it.
        refused = None if _is_outside_aws(environ) else self._refused(environ, service, action)
        if refused is None and is_client:
            refused = self._wrong_region(environ, service, action, region)
        if refused is None and is_client and self._throttled:
            refused = self._throttled(environ, service, action)
        if refused is not None:
            return self._send(refused, environ, start_response, f"{service or '-'} {action}", started)
        # CloudFormation has a separate lock. Its requests may wait for a stack, and its operations call this API.
        with contextlib.nullcontext() if service in self.own else self.lock:
            writes = not action.startswith(_READING)
            undo = self._mark() if writes and service in failed_calls.SERVICES else None
            with eventual_consistency.answering(service if is_client else "", action):
                status, headers, body = self._answer(environ, service, action)
            if status >= 400 and undo is not None:
                undo()
            if status < 400 and service in _WATCHED and writes:
                self.changed()
        reply = status, headers, body
        return self._send(
            reply, environ, start_response, f"{service or '-'} {action or environ.get('PATH_INFO')}", started
        )

    def _refused(self, environ: dict[str, Any], service: str, action: str) -> error_replies.Reply | None:
        """Return the gate's error reply, or None if the call is allowed. An exception in the gate denies the call."""
        try:
            return self._refusal(environ)
        except Exception as error:  # If the check crashes, the call is denied.
            log.error(
                "denied %s %s, because the check of its permissions failed\n%s", service, action, traceback.format_exc()
            )
            return _bug_reply(environ, f"{type(error).__name__}: {error}")

    def _wrong_region(
        self, environ: dict[str, Any], service: str, action: str, region: str
    ) -> error_replies.Reply | None:
        """Return an error reply for a region that does not exist, or for a change of a stack outside of HOME_REGION.

        Otherwise return None.
        """
        if region in ("", HOME_REGION):
            return None
        if region not in self.regions:
            # On AWS such a region has no address. AWS rejects a signature for it with this message.
            code = "InvalidSignatureException" if error_replies.is_json(environ) else "SignatureDoesNotMatch"
            return error_replies.reply(environ, code, f"Credential should be scoped to a valid region: {region}", 403)
        if service == "cloudformation" and not action.startswith(_READING):
            message = f"The embedded cloud only supports stacks in {HOME_REGION}, not in {region}"
            return error_replies.reply(environ, "ValidationError", message)
        return None

    def _send(
        self,
        reply: error_replies.Reply,
        environ: dict[str, Any],
        start_response: Callable[..., Any],
        what: str,
        started: float,
    ) -> Iterable[bytes]:
        """Log and send a reply; return its body. `what` is the service and action for the log."""
        status, headers, body = reply
        log.info("%s %d %.0f ms", what, status, (time.monotonic() - started) * 1000)
        if status >= 400:
            log.info("  %s", body[:500].decode("utf-8", "replace"))
        if environ.get("REQUEST_METHOD") == "HEAD":
            body = b""
        elif not any(name.lower() == "content-length" for name, _ in headers):
            headers = [*headers, ("Content-Length", str(len(body)))]
        start_response(f"{status} {'OK' if status < 400 else 'Error'}", headers)
        return [body]

    def _answer(self, environ: dict[str, Any], service: str, action: str) -> error_replies.Reply:
        """Answer a request with its service's application. Exceptions and 5xx replies become errors with status 400.

        Paths that AWS's API lacks are rejected with 404.
        """
        if _is_outside_aws(environ):
            message = f"the embedded cloud does not serve {environ.get('PATH_INFO')}, which is not in AWS's API"
            return error_replies.reply(environ, "NoSuchPath", message, 404)
        try:
            app = self.own.get(service, self.moto)
            if service == "cloudformation" and error_replies.service_of(environ)[1] not in ("", HOME_REGION):
                app = self.elsewhere or app
            content, line, headers = run_wsgi_app(app, environ, buffered=True)
            reply = int(line.split(" ", 1)[0]), list(headers), b"".join(content)
            if reply[0] == HTTPStatus.NOT_FOUND and service != "s3" and (not reply[2] or reply[2][:2] == b"<!"):
                raise NotImplementedError(f"no service has the path {environ.get('PATH_INFO')}")
        except NotImplementedError as error:
            named = f"{service or 'this service'}:{action}" if action else service
            message = f"{NOT_IMPLEMENTED} {named} ({error})"
            return error_replies.reply(environ, "InvalidAction", message)
        except Exception as error:
            # Catch every exception: SDKs would retry a 5xx for most of a minute.
            log.error(
                "%s %s failed because of a bug of the embedded cloud\n%s", service, action, traceback.format_exc()
            )
            return _bug_reply(environ, f"{type(error).__name__}: {error}")
        if reply[0] >= 500:
            log.error("%s %s answered %d: %r", service, action, reply[0], reply[2][:2000])
            return _bug_reply(environ, reply[2][:500].decode("utf-8", "replace"))
        return reply


def _bug_reply(environ: Mapping[str, Any], error: str) -> error_replies.Reply:
    return error_replies.reply(environ, "InternalFailure", error_replies.bug_message(error))


class _Moto(DomainDispatcherApplication):
    """moto's dispatcher, without the AttributeError that moto answers for services that it lacks."""

    def get_backend_for_host(self, host: str | None) -> Any:
        """Return the backend for a host name. Raises NotImplementedError for an AWS service that moto does not have."""
        is_aws = host is not None and "amazonaws.com" in host
        if is_aws and not any(pattern.match(f"http://{host}") for _, pattern in self.backend_url_patterns):
            raise NotImplementedError(f"no service has the host name {host}")
        return super().get_backend_for_host(host)


def _is_outside_aws(environ: Mapping[str, Any]) -> bool:
    """Return whether a request is for moto's control interface or fixed instance metadata, which AWS's API lacks."""
    return str(environ.get("PATH_INFO", "")).startswith(("/moto-api", "/latest/"))


def _read_body(environ: dict[str, Any]) -> None:
    """Read a request's body into memory, before the lock is taken, so that a slow client does not block others."""
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return
    if length > 0:
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))


def _action(environ: Mapping[str, Any]) -> str:
    """Return the name of the action. For REST services, return the verb of the HTTP method (Get, Put, ...)."""
    target = str(environ.get("HTTP_X_AMZ_TARGET", ""))
    if target:
        return target.rsplit(".", 1)[-1]
    if str(environ.get("CONTENT_TYPE", "")).startswith("application/x-www-form-urlencoded"):
        stream = environ["wsgi.input"]
        if isinstance(stream, io.BytesIO):
            values = parse_qs(stream.getvalue().decode("utf-8", "replace"))
            if "Action" in values:
                return values["Action"][0]
    query = parse_qs(str(environ.get("QUERY_STRING", "")))
    if "Action" in query:
        return query["Action"][0]
    method = str(environ.get("REQUEST_METHOD", ""))
    return {"GET": "Get", "HEAD": "Head", "PUT": "Put", "POST": "Post", "DELETE": "Delete"}.get(method, method)
