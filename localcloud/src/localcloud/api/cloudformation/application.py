"""The WSGI application of CloudFormation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import BackendRequest

from localcloud.api.cloudformation.account import Account
from localcloud.api.cloudformation.actions.describe import ReadingActions
from localcloud.api.cloudformation.actions.stacks import StackActions
from localcloud.api.permissions.caller import CALLER


class Responses(StackActions, ReadingActions):
    """Answer requests with the stacks of one account."""


class Application:
    """Answer the requests for one account's stacks (WSGI)."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        request = BackendRequest(environ)
        responses = Responses(self._account, environ.get(CALLER))
        responses.setup_class(request)
        status, headers, body = responses.call_action()
        start_response(f"{status} {'OK' if status < 400 else 'Error'}", [(k, str(v)) for k, v in headers.items()])
        return [body if isinstance(body, bytes) else str(body).encode()]
