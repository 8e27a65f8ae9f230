"""Hosts reach this machine's package index. A test's index is reached through the NAT."""

from __future__ import annotations

import contextlib
import functools
import http.server
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from localcloud.hosts.package_index import (
    CERTIFICATES,
    CONFIGURATION,
    PackageIndex,
    PackageIndexError,
    PipSettings,
    links,
    parse_settings,
    read_settings,
    resolve,
)
from testbed import WORKER, running, snapshot

ANSWER: Final = {
    "indexes": ["https://index.example/simple"],
    "find_links": [],
    "trusted": [],
    "certificates": "",
    "proxy": "",
    "client": "",
}
PLAIN: Final = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PIP_CONFIG_FILE": "/dev/null"}


@contextlib.contextmanager
def index(root: Path) -> Iterator[str]:
    """Serve an index with one pure package on this machine's loopback; yield its URL with this machine's name."""
    name = "toy-1.2-py3-none-any.whl"
    for project, page in (("toy", f'<a href="../../files/{name}">{name}</a>'), ("pip", "")):
        (root / "simple" / project).mkdir(parents=True)
        (root / "simple" / project / "index.html").write_text(f"<!DOCTYPE html><html><body>{page}</body></html>")
    (root / "files").mkdir()
    with zipfile.ZipFile(root / "files" / name, "w") as archive:
        archive.writestr("toy.py", "ANSWER = 42\n")
        archive.writestr("toy-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.2\n")
        archive.writestr("toy-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("toy-1.2.dist-info/RECORD", "")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    name = socket.gethostname().lower()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://{name}:{server.server_port}/simple"
        server.shutdown()


def needs_name_of_loopback() -> None:
    """Skip a test if this machine's name is not its loopback address, so that no other server is used."""
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        address = "none"
    if not address.startswith("127.0.0."):
        pytest.skip(f"this machine's name resolves to {address}, not to its loopback address")


@pytest.mark.root
def test_host_behind_the_nat_installs_a_package_of_this_machines_index(tmp_path: Path) -> None:
    needs_name_of_loopback()
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    with index(tmp_path / "index") as url:
        name = socket.gethostname()
        found = resolve(read_settings({**PLAIN, "PIP_INDEX_URL": url, "PIP_TRUSTED_HOST": name}))
        assert found.servers == {name.lower()}
        (tmp_path / "cloud").mkdir()
        with running(tmp_path / "cloud", found) as cloud:
            cloud.show(snapshot(WORKER))
            script = (
                f"{python} -m venv /home/ec2-user/v && cd /home/ec2-user && v/bin/pip install toy && v/bin/python -c"
            )
            done = cloud.execute(WORKER, f"{script} 'import toy; print(toy.ANSWER)'", user="ec2-user")
            assert (done.returncode, done.stdout.strip()[-2:]) == (0, "42"), done.stdout + done.stderr


def test_pip_reports_its_default_and_variables() -> None:
    default = read_settings(PLAIN)
    assert len(default.servers) == 1
    given = {"PIP_EXTRA_INDEX_URL": "https://more.example/simple", "PIP_FIND_LINKS": "/srv/wheels"}
    more = read_settings({**PLAIN, **given, "SSL_CERT_FILE": "/etc/authorities.pem"})
    assert more.indexes == (*default.indexes, "https://more.example/simple")
    assert (more.find_links, more.certificates) == (("/srv/wheels",), "/etc/authorities.pem")
    assert read_settings({**PLAIN, "PIP_NO_INDEX": "1"}).indexes == ()


def test_certificates_of_pip_override_those_of_variables() -> None:
    environment = {"REQUESTS_CA_BUNDLE": "/bundle", "SSL_CERT_FILE": "/file"}
    assert parse_settings({**ANSWER, "certificates": "/own"}, environment).certificates == "/own"
    assert parse_settings(ANSWER, environment).certificates == "/bundle"


def test_paths_in_home_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    found = parse_settings({**ANSWER, "find_links": ["~/wheels", "/srv/wheels", "https://more.example/~x"]}, {})
    assert found.find_links == ("/home/somebody/wheels", "/srv/wheels", "https://more.example/~x")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"proxy": "http://proxy.example:3128"}, "uses a proxy"),
        ({"client": "/etc/client.pem"}, "requires the client certificate /etc/client.pem"),
        ({"indexes": ["http://localhost:3141"]}, "index on this machine is localhost"),
        ({"indexes": ["https://[::1]"]}, "index on this machine is ::1"),
    ],
)
def test_unusable_settings_are_rejected(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(PackageIndexError, match=says):
        parse_settings({**ANSWER, **changes}, {})


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY"])
def test_proxy_in_a_variable_is_rejected(name: str) -> None:
    with pytest.raises(PackageIndexError, match="uses a proxy"):
        parse_settings(ANSWER, {name: "http://proxy.example:3128"})


def test_unreadable_certificates_are_reported(tmp_path: Path) -> None:
    with pytest.raises(
        PackageIndexError, match=f"cannot read pip's certificates in {tmp_path}: Is a directory; correct"
    ):
        resolve(PipSettings(indexes=(), find_links=(), trusted=(), certificates=str(tmp_path)))


def test_hosts_get_the_same_pip_configuration(tmp_path: Path) -> None:
    settings = PipSettings(
        indexes=("https://user:p%40ss@one.example/simple", "https://two.example/simple"),
        find_links=("/srv/wheels", "/srv/more"),
        trusted=("one.example",),
        certificates="/etc/own.pem",
    )
    (tmp_path / "pip.conf").write_text(settings.to_configuration())
    again = read_settings({**PLAIN, "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")})
    assert again.indexes == settings.indexes
    assert (again.find_links, again.trusted) == (settings.find_links, ("one.example",))
    assert again.certificates == CERTIFICATES


def test_directories_are_shown_at_same_paths_and_index_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "mirror" / "simple").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    places = (str(tmp_path / "wheels"), str(tmp_path / "gone"))
    found = resolve(PipSettings(indexes=(f"file://{tmp_path}/mirror/simple",), find_links=places))
    assert [bind.target for bind in found.binds] == [str(tmp_path / "mirror"), str(tmp_path / "wheels")]
    assert (found.servers, found.ports) == (frozenset(), ())


def test_directory_that_hosts_cannot_see_is_reported_without_the_option_mount() -> None:
    with pytest.raises(PackageIndexError, match="pip on this machine searches the directory /dev, which hosts cannot"):
        resolve(PipSettings(indexes=(), find_links=("/dev",)))


def test_unreachable_index_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    needs_name_of_loopback()
    url = f"http://{socket.gethostname()}:{port}/simple"
    with pytest.raises(
        PackageIndexError, match=f"cannot read this machine's package index at {url}/pip/: Connection refused; "
    ):
        resolve(PipSettings(indexes=(url,)))


def test_each_server_of_a_page_is_found_once() -> None:
    page = '<a href="../../files/a.whl">a</a><a href="https://files.example/b.whl#x">b</a>' * 2
    assert links(page, "https://index.example/simple/pip/") == [
        "https://index.example/files/a.whl",
        "https://files.example/b.whl#x",
    ]


def test_files_replace_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/pip.conf").symlink_to("/dev/null")
    PackageIndex(files={CONFIGURATION: "[global]\n"}).install(tmp_path)
    assert (tmp_path / "etc/pip.conf").read_text() == "[global]\n"
    assert not (tmp_path / "etc/pip.conf").is_symlink()
