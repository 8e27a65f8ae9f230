"""The dashboard's server: access to its pages, and permitted requests."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest

from cluster.dashboard.server import ASSETS, MAX_FORM_BYTES, Server
from tests.cluster.dashboard.fakes import RECORDED, FakeCluster, live_cluster, serving

PATHS = ("/", "/runs", "/sweeps", "/sweeps/s", f"/runs/{RECORDED}", f"/runs/{RECORDED}/report", *ASSETS)
STOP = f"/runs/{RECORDED}/stop"


@pytest.fixture
def cluster() -> FakeCluster:
    return live_cluster()


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[Server]:
    with serving(cluster) as found:
        yield found


def ask(
    server: Server, path: str, headers: Mapping[str, str] | None = None, *, method: str = "GET", body: str = ""
) -> http.client.HTTPResponse:
    """Send a request and read the answer; its text is then in `answer.body`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request(method, path, body=body or None, headers=dict(headers or {}))
    answer = connection.getresponse()
    answer.body = answer.read().decode()  # type: ignore[attr-defined]  # for the tests
    connection.close()
    return answer


def signed_in(server: Server) -> dict[str, str]:
    """Return the headers of a browser that has opened the address with the token."""
    return {"Cookie": f"{server.cookie}={server.dashboard.token}"}


def own(server: Server) -> dict[str, str]:
    """Return the headers of a request from one of the server's own pages."""
    return {**signed_in(server), "Origin": f"http://127.0.0.1:{server.server_port}"}


def test_server_listens_only_on_loopback(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_sent_without_the_cookie(server: Server, path: str) -> None:
    for cookie in ({}, {"Cookie": f"{server.cookie}=guessed"}, {"Cookie": "\x01=;"}, {"Cookie": server.cookie}):
        answer = ask(server, path, cookie)
        assert answer.status == 403
        assert "fab dashboard" in answer.body  # type: ignore[attr-defined]
    assert ask(server, path, signed_in(server)).status == 200


def test_token_is_moved_from_address_to_cookie(server: Server) -> None:
    parts = urlsplit(server.address)
    answer = ask(server, f"{parts.path}?{parts.query}")
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert cookie == f"{server.cookie}={server.dashboard.token}; Path=/; HttpOnly; SameSite=Strict"
    assert ask(server, "/?token=guessed").status == 403
    assert "Set-Cookie" not in ask(server, "/?token=%FF", signed_in(server)).headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "", "[", "localhost@x"]
)
def test_another_host_is_rejected_even_with_the_cookie(server: Server, host: str) -> None:
    headers = {**signed_in(server), "Host": host.format(port=server.server_port)}
    assert ask(server, "/", headers).status == 403
    assert ask(server, "/?token=" + server.dashboard.token, headers).status == 403


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:9", "[::1]:{port}"])
def test_forwarded_port_of_the_loopback_is_accepted(server: Server, host: str) -> None:
    assert ask(server, "/", {**signed_in(server), "Host": host.format(port=server.server_port)}).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_another_origin_is_rejected(server: Server, cluster: FakeCluster, origin: str) -> None:
    headers = {**signed_in(server), "Origin": origin.format(port=server.server_port)}
    assert ask(server, "/", headers).status == 403
    assert ask(server, STOP, headers, method="POST", body="yes=1").status == 403
    assert cluster.acted == []


def test_action_requires_cookie_and_same_origin(server: Server, cluster: FakeCluster) -> None:
    without_cookie = {name: value for name, value in own(server).items() if name != "Cookie"}
    for headers in ({}, signed_in(server), without_cookie, {**own(server), "Host": "evil.example"}):
        assert ask(server, STOP, headers, method="POST", body="yes=1").status == 403
    assert cluster.acted == []
    cluster.answers += [{"question": "stop it?"}, {"done": "stopped"}]
    for agreed in ("", "1"):
        assert ask(server, STOP, own(server), method="POST", body=f"yes={agreed}").status == 200
    assert cluster.acted == [("stop", "runs", RECORDED, False), ("stop", "runs", RECORDED, True)]


@pytest.mark.parametrize("verb", ["stop", "resume"])
def test_actions_of_sweeps_have_their_own_addresses(server: Server, cluster: FakeCluster, verb: str) -> None:
    cluster.answers.append({"done": "done"})
    assert ask(server, f"/sweeps/lr-search/{verb}", own(server), method="POST", body="yes=1").status == 200
    assert cluster.acted == [(verb, "sweeps", "lr-search", True)]


def test_forms_are_small_and_actions_are_known(server: Server, cluster: FakeCluster) -> None:
    assert ask(server, STOP, own(server), method="POST", body="x" * (MAX_FORM_BYTES + 1)).status == 413
    assert ask(server, STOP, {**own(server), "Content-Length": "-1"}, method="POST").status == 413
    further = (f"{STOP}/more", "/sweeps/--yes/stop", "/sweeps/s/report")
    for path in ("/runs/x/delete", "/runs/../stop", "/runs/--yes/stop", *further):
        assert ask(server, path, own(server), method="POST", body="yes=1").status == 404
    assert ask(server, STOP, own(server), method="PUT", body="x").status == 501
    assert cluster.acted == []


@pytest.mark.parametrize(
    "path",
    ["/nothing", "/runs/-x", "/runs/../../etc/passwd", "/runs/%2e%2e", "/sweeps/-x", "//evil", "/dashboard.css/"],
)
def test_unknown_addresses_have_no_page(server: Server, path: str) -> None:
    assert ask(server, path, signed_in(server)).status == 404


def test_pages_may_load_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/runs", "/sweeps", "/sweeps/s", f"/runs/{RECORDED}"):
        answer = ask(server, path, signed_in(server))
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        text: str = answer.body  # type: ignore[attr-defined]
        assert "http://" not in text.replace("http://www.w3.org/", "")
        assert "https://" not in text
        assert "<style" not in text


def test_unchanged_page_is_not_sent_again(server: Server, cluster: FakeCluster) -> None:
    first = ask(server, "/runs", signed_in(server))
    again = ask(server, "/runs", {**signed_in(server), "If-None-Match": first.headers["ETag"]})
    assert (again.status, again.headers["X-State"]) == (304, "live")
    assert 0 <= float(again.headers["X-Age"]) < 60
    cluster.runs_[0] = {**cluster.runs_[0], "reason": "another reason"}
    server.dashboard.readers.runs._seen = type(server.dashboard.readers.runs._seen)(value=cluster.runs())
    changed = ask(server, "/runs", {**signed_in(server), "If-None-Match": first.headers["ETag"]})
    assert changed.status == 200


def test_report_is_the_page_of_fab_report_with_its_own_policy(server: Server) -> None:
    answer = ask(server, f"/runs/{RECORDED}/report", signed_in(server))
    assert answer.body == f"<!doctype html><title>report of {RECORDED}</title>"  # type: ignore[attr-defined]
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "script-src" not in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("error", "printed"),
    [
        (
            PermissionError(13, "Permission denied"),
            "dashboard: a request failed: PermissionError: Permission denied; reload the page\n",
        ),
        (BrokenPipeError(32, "Broken pipe"), ""),
        (TimeoutError("timed out"), ""),
    ],
)
def test_only_errors_of_the_connection_are_hidden(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    printed: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(server.dashboard, "act", fail)
    with pytest.raises(http.client.HTTPException):
        ask(server, STOP, own(server), method="POST", body="yes=1")
    assert capsys.readouterr().err == printed
