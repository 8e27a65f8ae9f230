"""The web server of the dashboard, on this machine's loopback interface.

The server of the standard library is enough: there are few routes and one reader, whose browser asks for changes about
once a second. Starlette with Uvicorn would add seven packages to every laptop.

Only a browser that has opened the address with the token gets a page. A request must name this machine's loopback as
its host, which prevents DNS rebinding. A request that changes something must come from one of the server's own pages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import secrets
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final

from agent.errors import describe
from agent.spec.run_id import is_run_id
from cluster.dashboard import pages
from cluster.dashboard.page_data import Readers
from cluster.dashboard.polled_values import Seen
from cluster.errors import DeepcdkError
from cluster.terminal.wrap import with_command

FIRST_WAIT_S: Final = 0.4
"""Wait for the first read of a source before an empty page is sent."""
MAX_FORM_BYTES: Final = 4096
HOSTS: Final = ("127.0.0.1", "localhost", "::1")
"""Names of the loopback. The port may differ, because an SSH forwarding may have another one."""
SECURITY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content security policy of the pages. Only figures have style attributes."""
REPORT_SECURITY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
ASSETS: Final = {"/dashboard.css": "text/css", "/dashboard.js": "text/javascript"}
VERBS: Final = ("stop", "resume")
Act = Callable[[str, str, str, bool], dict[str, str]]
"""Stop or resume ("stop", "resume") one of "runs" or "sweeps" by its id, after the answer yes to a question or before
it; returns `done`, `question` or `error`."""


class Dashboard:
    """The pages of one cluster. `act` stops or resumes a run or a sweep, `report` returns a run's report."""

    def __init__(self, name: str, readers: Readers, act: Act, report: Callable[[str], str]) -> None:
        self.name, self.readers, self.act, self.report = name, readers, act, report
        self.token = secrets.token_urlsafe(32)
        self._templates = pages.templates()

    def render(self, template: str, **content: Any) -> str:
        """Render the template of a page, the style sheet or the script. `content` are the template's variables."""
        return self._templates.get_template(template).render(name=self.name, **content)

    def page(self, path: str, query: Mapping[str, str]) -> tuple[str, Seen[Any]] | None:
        """Return a page as HTML, and the data it shows; None for an unknown path.

        `query` contains the parameters in the page's address, such as the sort order of a table.
        Waits up to FIRST_WAIT_S for the first data.
        """
        match path.strip("/").split("/"):
            case [""]:
                cluster, runs = self.readers.cluster.look(FIRST_WAIT_S), self.readers.runs.look(FIRST_WAIT_S)
                seen: Seen[Any] = min((cluster, runs), key=lambda each: (not each.trouble, each.at))
                live = pages.live_first(runs.value or ())
                text = self.render("cluster.html.j2", seen=seen, cluster=cluster.value, runs=runs.value, live=live)
            case ["runs"]:
                seen, choice = self.readers.runs.look(FIRST_WAIT_S), pages.Choice.of(query)
                found = choice.apply(seen.value or ())
                text = self.render("runs.html.j2", seen=seen, runs=seen.value, found=found, choice=choice)
            case ["sweeps"]:
                seen = self.readers.runs.look(FIRST_WAIT_S)
                text = self.render("sweeps.html.j2", seen=seen, found=pages.sweeps(seen.value or ()))
            case ["sweeps", name] if is_run_id(name):
                seen, choice = self.readers.runs.look(FIRST_WAIT_S), pages.Choice.of(query)
                sweep = pages.sweeps(seen.value or ()).get(name)
                view = self.readers.sweep(name, sweep.runs) if sweep else None
                found = choice.apply(sweep.every) if sweep else []
                content = {"sweep_name": name, "sweep": sweep, "view": view, "choice": choice, "found": found}
                text = self.render("sweep.html.j2", seen=seen, **content)
            case ["runs", run_id] if is_run_id(run_id):
                seen = self.readers.run(run_id).look(FIRST_WAIT_S)
                text = self.render("run.html.j2", seen=seen, run_id=run_id, view=seen.value)
            case _:
                return None
        return text, seen


class Server(http.server.ThreadingHTTPServer):
    """Serve a dashboard on a port of the loopback."""

    daemon_threads = True

    def __init__(self, dashboard: Dashboard, port: int) -> None:
        self.dashboard = dashboard
        super().__init__((HOSTS[0], port), Handler)
        self.cookie = f"deepcdk-{self.server_port}"  # a browser sends cookies to all ports of a host

    @property
    def address(self) -> str:
        """Return the address to open, with the token."""
        return f"http://{HOSTS[0]}:{self.server_port}/?token={self.dashboard.token}"

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """Print the current error in one line, unless a browser closed its connection or does not read from it."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError | TimeoutError):
            print(
                f"dashboard: a request failed: {type(error).__name__}: {describe(error)}; reload the page",
                file=sys.stderr,
            )


class Handler(http.server.BaseHTTPRequestHandler):
    """Answer one connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: addresses may contain the token."""

    def do_GET(self) -> None:
        """Sign in with the token in the address, or send a page, a report, the style sheet or the script.

        Requests to another host than the loopback, and requests without the cookie, get status 403.
        """
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        dashboard = self.server.dashboard
        if not self._has_own_host():
            what = "The dashboard answers only to localhost. From another machine, forward its port with `ssh -L`."
            self._send_text(HTTPStatus.FORBIDDEN, what)
        elif url.path == "/" and "token" in query:
            self._sign_in(query["token"])
        elif not self._is_signed_in():
            self._send_text(HTTPStatus.FORBIDDEN, "Open the address that `fab dashboard` has printed.")
        elif url.path in ASSETS:
            self._send(HTTPStatus.OK, dashboard.render(url.path[1:]), f"{ASSETS[url.path]}; charset=utf-8")
        elif (found := self._parts(url.path)) and (found[0], found[2]) == ("runs", "report"):
            self._send_report(found[1])
        else:
            self._send_page(url.path, query)

    def do_POST(self) -> None:
        """Stop or resume a run or a sweep, and send the result as JSON, or the question to answer first.

        Requests from other pages, without the cookie, for an unknown action or with more than MAX_FORM_BYTES are
        rejected.
        """
        path, size = urllib.parse.urlsplit(self.path).path, self.headers.get("Content-Length", "")
        own = f"http://{self.headers.get('Host', '')}"
        if not self._has_own_host() or not self._is_signed_in() or self.headers.get("Origin") != own:
            self.close_connection = True  # the form was not read
            self._send_text(HTTPStatus.FORBIDDEN, "Only the dashboard's own pages can do this.")
            return
        if not size.isdecimal() or int(size) > MAX_FORM_BYTES:
            self.close_connection = True
            what = f"A form needs the header Content-Length, with at most {MAX_FORM_BYTES} bytes."
            self._send_text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what)
            return
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(size)).decode("utf-8", errors="replace")))
        if (found := self._parts(path)) and found[2] in VERBS:
            kind, name, verb = found
            answer = self.server.dashboard.act(verb, kind, name, form.get("yes") == "1")
            self._send(HTTPStatus.OK, json.dumps(answer), "application/json")
        else:
            self._send_text(HTTPStatus.NOT_FOUND, "There is no such action.")

    @staticmethod
    def _parts(path: str) -> tuple[str, str, str] | None:
        """Split the path /runs/ID/VERB or /sweeps/ID/VERB into its three parts; None for any other path."""
        match path.split("/"):
            case ["", ("runs" | "sweeps") as kind, name, verb] if is_run_id(name):
                return kind, name, verb
        return None

    def _has_own_host(self) -> bool:
        """Return whether the request names the loopback as its host, and does not come from another site."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        try:
            name = urllib.parse.urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name in HOSTS and origin in (None, f"http://{host}")

    def _is_signed_in(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self.server.dashboard.token.encode())

    def _sign_in(self, token: str) -> None:
        """Exchange the token in the address for a cookie, and redirect to the address without the token.

        A wrong token gets status 403.
        """
        if not hmac.compare_digest(token.encode(), self.server.dashboard.token.encode()):
            self._send_text(
                HTTPStatus.FORBIDDEN, "This token is not valid. `fab dashboard` prints a new one each time."
            )
            return
        cookie = f"{self.server.cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
        self._send(HTTPStatus.SEE_OTHER, "", "text/plain", {"Location": "/", "Set-Cookie": cookie})

    def _send_page(self, path: str, query: Mapping[str, str]) -> None:
        """Send a page. If the browser already has this version, send only its age, with status 304. Errors are sent as
        text.
        """
        try:
            page = self.server.dashboard.page(path, query)
        except Exception as error:  # for example, an unexpected value from the master
            what = f"{type(error).__name__}: {describe(error)}"
            text = f"This page could not be shown because of an unexpected error: {what}"
            self._send_text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{text}\nReload it, or use `fab status` and `fab runs`.")
            return
        if page is None:
            self._send_text(HTTPStatus.NOT_FOUND, "There is no such page.")
            return
        text, seen = page
        tag = f'"{base64.b32encode(hashlib.sha256(text.encode()).digest()[:15]).decode()}"'
        age = f"{time.time() - seen.at:.1f}" if seen.at else ""
        headers = {"ETag": tag, "X-Age": age, "X-State": seen.state}
        if self.headers.get("If-None-Match") == tag:
            self._send(HTTPStatus.NOT_MODIFIED, "", "text/html; charset=utf-8", headers)
        else:
            self._send(HTTPStatus.OK, text, "text/html; charset=utf-8", headers)

    def _send_report(self, run_id: str) -> None:
        try:
            text = self.server.dashboard.report(run_id)
        except DeepcdkError as error:
            self._send_text(HTTPStatus.BAD_GATEWAY, f"deepcdk: {error}")
            return
        self._send(HTTPStatus.OK, text, "text/html; charset=utf-8", {"Content-Security-Policy": REPORT_SECURITY})

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self._send(status, f"{with_command(text)}\n", "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, text: str, kind: str, headers: Mapping[str, str] | None = None) -> None:
        body = text.encode("utf-8", errors="replace")
        self.send_response(status)
        fixed = {
            "Content-Type": kind,
            "Content-Security-Policy": SECURITY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }
        for name, value in (fixed | dict(headers or {})).items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status != HTTPStatus.NOT_MODIFIED:
            self.wfile.write(body)
