"""The WSGI application of Systems Manager: moto's, with Session Manager's actions, which moto lacks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from localcloud.api import error_replies
from localcloud.sessions.service import NotConnectedError, SessionService

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

DOCUMENT: Final = "AWS-StartSSHSession"
"""The only supported session document: a stream to the SSH port or another port."""


class RequestError(Exception):
    """A rejected request: AWS rejects it too, or the embedded cloud does not support it. Carries AWS's `code`."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Application:
    """Answers the requests to Systems Manager."""

    def __init__(self, moto: WsgiApp, lock: threading.RLock, service: SessionService) -> None:
        self._moto, self._lock, self._service = moto, lock, service
        self._actions = {
            "StartSession": self._start,
            "TerminateSession": self._terminate,
            "ResumeSession": self._resume,
            "GetConnectionStatus": self._status,
            "DescribeInstanceInformation": self._instances,
        }

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request (WSGI): Session Manager's actions here, and all other actions with moto."""
        action = self._actions.get(str(environ.get("HTTP_X_AMZ_TARGET", "")).rpartition(".")[2])
        if action is None:
            with self._lock:
                return list(self._moto(environ, start_response))
        try:
            body = json.dumps(action(json.loads(environ["wsgi.input"].read() or b"{}"))).encode()
        except RequestError as error:
            status, headers, refused = error_replies.reply(environ, error.code, str(error))
            start_response(f"{status} Error", headers)
            return [refused]
        start_response("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
        return [body]

    def _start(self, request: dict[str, Any]) -> dict[str, str]:
        document = request.get("DocumentName", "SSM-SessionManagerRunShell")
        if document != DOCUMENT:
            raise RequestError(
                "InvalidDocument", f"the embedded cloud only supports the document {DOCUMENT}, not {document}"
            )
        port = ",".join(request.get("Parameters", {}).get("portNumber", ["22"]))
        if not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise RequestError("ValidationException", f"portNumber {port} is not a TCP port from 1 to 65535")
        try:
            session = self._service.start(request.get("Target", ""), int(port))
        except NotConnectedError as error:
            raise RequestError("TargetNotConnected", str(error)) from None
        return {"SessionId": session.id, "TokenValue": session.client_token, "StreamUrl": self._service.url()}

    def _terminate(self, request: dict[str, Any]) -> dict[str, str]:
        self._service.relay.end(request.get("SessionId", ""))
        return {"SessionId": request.get("SessionId", "")}

    def _resume(self, request: dict[str, Any]) -> dict[str, str]:
        raise RequestError("DoesNotExistException", "the embedded cloud cannot resume sessions; start a new one")

    def _status(self, request: dict[str, Any]) -> dict[str, str]:
        target = request.get("Target", "")
        return {
            "Target": target,
            "Status": "notconnected" if self._service.reason_not_connected(target) else "connected",
        }

    def _instances(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"InstanceInformationList": list(self._information(_wanted(request)))}

    def _information(self, wanted: set[str] | None) -> Iterator[dict[str, Any]]:
        for instance_id, host in sorted(self._service.hosts.items()):
            if (wanted is None or instance_id in wanted) and not self._service.reason_not_connected(instance_id):
                yield {
                    "InstanceId": instance_id,
                    "PingStatus": "Online",
                    "PlatformType": "Linux",
                    "ResourceType": "EC2Instance",
                    "IPAddress": host.instance.private_ip,
                }


def _wanted(request: dict[str, Any]) -> set[str] | None:
    """Return the instance ids that a request filters by, or None for all. Raises RequestError for other filters.

    With several filters, an id must be in all of them.
    """
    wanted: set[str] | None = None
    for given in (*request.get("Filters", []), *request.get("InstanceInformationFilterList", [])):
        key, values = given.get("Key") or given.get("key"), given.get("Values") or given.get("valueSet") or []
        if key != "InstanceIds":
            raise RequestError(
                "InvalidFilterKey", f"the embedded cloud only supports the filter InstanceIds, not {key}"
            )
        wanted = set(values) if wanted is None else wanted & set(values)
    return wanted
