"""Horovod's wheel from a wheelhouse: a directory, a bucket or a web server."""

from __future__ import annotations

import functools
import http.server
import importlib.metadata
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.environment.horovod_build import build, default_cache
from agent.environment.horovod_build_settings import Settings, fingerprint
from agent.environment.horovod_wheelhouse import WheelhouseError, check, fetch
from agent.environment.toolchain import detect
from tests.agent.environment.test_horovod_build import WHEEL
from tests.agent.environment.test_horovod_build_settings import TOOLCHAIN
from tests.stand_ins import served_s3

NAME = f"{fingerprint(Settings(), TOOLCHAIN)}/{WHEEL}"


def publish(wheelhouse: Path, module: str = "", name: str = NAME) -> Path:
    """Write a wheel whose `horovod.tensorflow` has the text `module` into a wheelhouse; return its path."""
    path = wheelhouse / name
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("horovod/__init__.py", "")
        archive.writestr("horovod/tensorflow/__init__.py", "")
        archive.writestr("horovod/tensorflow/mpi_ops.py", module)
    return path


def build_with(wheelhouse: str, cache: Path) -> tuple[Path, list[str]]:
    """Call `build` with a wheelhouse on a machine that cannot build; return the wheel and the messages."""
    told: list[str] = []
    settings = Settings(wheelhouse=wheelhouse)
    base = {"PATH": "/usr/bin:/bin"}
    no_source = cache.parent / "no source"
    made = build(settings, TOOLCHAIN, cache=cache, base=base, report=told.append, sdist=no_source)
    return made, told


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serve `tmp_path` over HTTP; yield the address. Files below `private` are answered with 403."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/private"):
                self.send_error(403)
            else:
                super().do_GET()

        def log_message(self, *_: object) -> None:
            """Print no log."""

    handler = functools.partial(Handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


def test_published_wheel_is_used_instead_of_a_build(tmp_path: Path) -> None:
    published = publish(tmp_path / "wheels")
    made, told = build_with(f"{tmp_path}/wheels", tmp_path / "cache")
    assert made == tmp_path / "cache" / "horovod" / NAME
    assert made.read_bytes() == published.read_bytes()
    assert told == [f"using Horovod's wheel from {tmp_path}/wheels: {NAME}"]
    assert build_with("/no such directory", tmp_path / "cache") == (made, [])


def test_wheel_with_another_fingerprint_is_never_used(tmp_path: Path) -> None:
    publish(tmp_path / "wheels", name=f"{'0' * 16}/{WHEEL}")
    told: list[str] = []
    with pytest.raises(FileNotFoundError, match="no source"):
        build(
            Settings(wheelhouse=f"{tmp_path}/wheels"), TOOLCHAIN, cache=tmp_path / "cache", base=dict(os.environ),
            report=told.append, sdist=tmp_path / "no source",
        )  # fmt: skip
    assert told[0] == f"{tmp_path}/wheels does not contain {NAME}"
    assert told[1].startswith("building Horovod")


@pytest.mark.parametrize("damage", ["truncated", "missing library"])
def test_published_wheel_that_does_not_work_is_an_error_and_not_cached(tmp_path: Path, damage: str) -> None:
    published = publish(tmp_path / "wheels", "raise ImportError('libmpi.so.40: cannot open shared object file')")
    if damage == "truncated":
        published.write_bytes(published.read_bytes()[:-30])
    with pytest.raises(WheelhouseError, match=r"is damaged|cannot be imported:\n.*\n.*\nImportError: libmpi") as failed:
        build_with(f"{tmp_path}/wheels", tmp_path / "cache")
    assert "key `wheelhouse` in cdk.json" in str(failed.value)
    assert failed.value.address == f"{tmp_path}/wheels"
    assert list((tmp_path / "cache").glob("**/*.whl")) == []


def test_wheel_comes_from_a_web_server(tmp_path: Path, server: str) -> None:
    published = publish(tmp_path / "wheels")
    into = tmp_path / "fetched"
    assert fetch(f"{server}/wheels/", NAME, into)
    assert into.read_bytes() == published.read_bytes()
    assert not fetch(f"{server}/wheels", f"{'0' * 16}/{WHEEL}", into)


@pytest.mark.parametrize(
    ("wheelhouse", "reason"),
    [
        ("/no/such/directory", "there is no directory /no/such/directory"),
        ("{server}/private", "HTTP Error 403: Forbidden"),
        ("http://127.0.0.1:9", "Connection refused"),
        ("http://127.0.0.1:x", "nonnumeric port: 'x'"),
        ("s3://B/wheels", "must be s3://BUCKET/PREFIX"),
        ("wheels", "an absolute path, s3://BUCKET/PREFIX or https://HOST/PATH"),
    ],
)
def test_unreadable_wheelhouse_is_an_error(tmp_path: Path, server: str, wheelhouse: str, reason: str) -> None:
    address = wheelhouse.format(server=server)
    with pytest.raises(WheelhouseError, match="cannot use Horovod's wheel from") as failed:
        fetch(address, NAME, tmp_path / "fetched")
    assert reason in failed.value.reason
    assert failed.value.address == f"{address}/{NAME}"


def test_wheel_comes_from_a_bucket(tmp_path: Path) -> None:
    with served_s3() as s3:
        s3.create_bucket(Bucket="wheels")
        s3.put_object(Bucket="wheels", Key=f"horovod/{NAME}", Body=b"wheel")
        into = tmp_path / "fetched"
        assert fetch("s3://wheels/horovod", NAME, into)
        assert into.read_bytes() == b"wheel"
        assert not fetch("s3://wheels/other", NAME, into)
        with pytest.raises(WheelhouseError, match="NoSuchBucket"):
            fetch("s3://no-such-bucket/horovod", NAME, into)


@pytest.mark.horovod
def test_wheel_of_the_cache_can_be_published_and_imported(tmp_path: Path) -> None:
    assert importlib.metadata.version("horovod")
    found = fingerprint(Settings(), detect(search_path=os.environ["PATH"], cuda=None))
    (wheel,) = (default_cache(os.environ) / "horovod" / found).glob("*.whl")
    check(wheel, "the cache", ("tensorflow",), [Path(sys.prefix) / "lib"], tmp_path)
    with pytest.raises(WheelhouseError, match=f"{wheel.name} cannot be imported"):
        check(wheel, "the cache", ("torch",), [Path(sys.prefix) / "lib"], tmp_path)
