"""Facts about the environment of a program's own: made from its lock alone, once for all nodes."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import http.server
import io
import os
import secrets
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.environment import package_index
from agent.environment.horovod_build import parse_settings
from agent.environment.horovod_build_settings import Settings
from agent.environment.own_environment import OwnEnvironment, OwnEnvironmentBuilder, locked_lines, pins, placed
from agent.environment.toolchain import this_platform
from agent.environment.virtual_environment import RuntimeSetupError

LOCK = """\
# made by uv
--index-url https://index.example/simple
numpy==1.26.4 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
torch==2.13.0+cpu ; sys_platform == 'linux' \\
    --hash=sha256:cc
"""


def write_wheel(directory: Path, version: str = "1.2") -> str:
    """Write a wheel of the package toy; return its line of a lock file."""
    wheel = directory / f"toy-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("toy.py", f"VERSION = '{version}'\n")
        archive.writestr(f"toy-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n")
        archive.writestr(
            f"toy-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"toy-{version}.dist-info/RECORD", "")
    return f"toy=={version} \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


def environment(tmp_path: Path, lock: str, **changes: Any) -> OwnEnvironment:
    made = OwnEnvironment(
        root=tmp_path / "environments",
        lock=lock,
        program=tmp_path,
        settings=None,
        here=this_platform(),
        wheelhouse=tmp_path / "wheelhouse",
    )
    return dataclasses.replace(made, **changes)


def ensure(made: OwnEnvironment, said: list[str] | None = None, **environ: str) -> Path:
    builder = OwnEnvironmentBuilder(
        environment=made,
        build_options=(),
        cache=made.root,
        environ={**os.environ, **environ},
        report=(said if said is not None else []).append,
    )
    return builder.ensure()


def test_a_locks_packages_are_pinned_without_hashes_markers_and_options() -> None:
    assert pins(LOCK) == ["numpy==1.26.4", "torch==2.13.0+cpu"]
    assert len(locked_lines(LOCK)) == 6


def test_another_lock_framework_or_python_is_another_environment_and_a_comment_is_not(tmp_path: Path) -> None:
    here = this_platform()
    made = environment(tmp_path, LOCK)
    others = [
        environment(tmp_path, LOCK.replace("1.26.4", "1.26.3")),
        environment(tmp_path, LOCK.replace("index.example", "other.example")),
        environment(tmp_path, LOCK, settings=Settings()),
        environment(tmp_path, LOCK, settings=Settings(frameworks=("torch",))),
        environment(tmp_path, LOCK, settings=Settings(frameworks=("tensorflow", "torch"))),
        environment(tmp_path, LOCK, here=dataclasses.replace(here, python=(3, 13))),
    ]
    assert len({each.fingerprint for each in (made, *others)}) == len(others) + 1
    assert environment(tmp_path, f"# later\n\n{LOCK}").fingerprint == made.fingerprint


def test_one_node_brings_the_packages_and_the_next_installs_from_there(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    lock = "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")
    said: list[str] = []
    first = ensure(environment(tmp_path, lock), said)
    (tmp_path / "wheels" / "toy-1.2-py3-none-any.whl").unlink()
    second = ensure(environment(tmp_path, lock, root=tmp_path / "second"))
    for python in (first, second):
        done = subprocess.run(
            [python, "-c", "import toy; print(toy.VERSION)"], capture_output=True, text=True, check=True
        )
        assert done.stdout == "1.2\n"
    assert any(line.startswith("bringing 1 packages to ") for line in said)
    assert ensure(environment(tmp_path, lock)) == first


def test_it_has_nothing_of_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    python = ensure(environment(tmp_path, "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")))
    done = subprocess.run([python, "-c", "import pytest"], capture_output=True, text=True, check=False)
    assert "No module named 'pytest'" in done.stderr
    assert Path(sys.prefix) not in python.parents


def test_a_package_that_is_not_the_locked_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    lock = "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")
    write_wheel(tmp_path / "wheels" / "..", "1.2")
    with zipfile.ZipFile(tmp_path / "wheels" / "toy-1.2-py3-none-any.whl", "a") as archive:
        archive.writestr("more.py", "")
    made = environment(tmp_path, lock)
    with pytest.raises(RuntimeSetupError, match="Bringing the packages of the program's environment failed"):
        ensure(made)
    assert not (made.directory / ".complete").exists()


def test_horovods_settings_are_read_as_its_build_reads_them() -> None:
    assert parse_settings(("--frameworks", "tensorflow,torch")).frameworks == ("tensorflow", "torch")
    assert parse_settings(("--operations", "gpu", "--cc", "80")).compute_capabilities == (80,)
    with pytest.raises(ValueError, match="frameworks = 'mxnet': must be of tensorflow, torch"):
        parse_settings(("--frameworks", "mxnet"))


def test_directories_of_wheels_are_the_programs_and_not_the_wheelhouses(tmp_path: Path) -> None:
    lock = "-f .\n--find-links 'two words'\n--find-links=/there\n--find-links https://host/wheels\ntoy==1.2\n"
    assert placed(lock, Path("/program")) == (
        "-f /program\n--find-links '/program/two words'\n--find-links=/there\n"
        "--find-links https://host/wheels\ntoy==1.2\n"
    )
    python = ensure(environment(tmp_path, "--no-index\n--find-links .\n" + write_wheel(tmp_path)))
    assert subprocess.run([python, "-c", "import toy"], check=False).returncode == 0


def test_half_a_wheel_that_a_killed_or_full_node_left_is_brought_again(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    made = environment(tmp_path, "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels"))
    made.wheels.mkdir(parents=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    (made.wheels / wheel.name).write_bytes(wheel.read_bytes()[:100])
    assert ensure(made).exists()
    assert (made.wheels / wheel.name).read_bytes() == wheel.read_bytes()


def test_what_is_installed_was_locked_also_where_pip_knows_another_of_the_same_version(tmp_path: Path) -> None:
    for name in ("wheels", "others"):
        (tmp_path / name).mkdir()
    lock = "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")
    write_wheel(tmp_path / "others")
    other = tmp_path / "others" / "toy-1.2-py3-none-any.whl"
    with zipfile.ZipFile(other, "a") as archive:
        archive.writestr("intruder.py", "")
    other.rename(other.with_name("toy-1.2-1-py3-none-any.whl"))  # a later build, which pip prefers
    made = environment(tmp_path, lock)
    ensure(made)
    second = ensure(dataclasses.replace(made, root=tmp_path / "second"), PIP_FIND_LINKS=str(tmp_path / "others"))
    done = subprocess.run([second, "-c", "import toy, intruder"], capture_output=True, text=True, check=False)
    assert "No module named 'intruder'" in done.stderr


def test_without_an_index_it_ends_at_once_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_index, "missing", lambda python: "This node has no package index: nowhere")
    (tmp_path / "wheels").mkdir()
    made = environment(tmp_path, write_wheel(tmp_path / "wheels"))
    with pytest.raises(RuntimeSetupError, match=r"(?s)--no-index.*This node has no package index: nowhere$"):
        ensure(made)
    there = environment(tmp_path, "--find-links wheels\n" + made.lock)
    assert ensure(there).exists()  # the wheels of the program are enough


def test_an_index_that_the_requirements_name_is_asked_whatever_pip_is_configured_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_index, "missing", lambda python: "never asked")
    with pytest.raises(RuntimeSetupError) as refused:
        ensure(environment(tmp_path, f"--index-url file://{tmp_path}/simple\ntoy==1.2 --hash=sha256:{'a' * 64}\n"))
    assert "never asked" not in str(refused.value) and "--no-index" not in str(refused.value)


def test_a_password_of_an_index_is_on_no_command_line_and_not_in_the_wheelhouse(tmp_path: Path) -> None:
    """The index answers who names the password alone; a package without a wheel has pip start another pip."""
    write_source(tmp_path / "simple", "tool", seen=tmp_path / "seen.txt")
    line = write_source(tmp_path / "simple", "toy", "tool", seen=tmp_path / "seen.txt")
    unique = secrets.token_hex(8)
    with served(tmp_path, user="ann", password=f"a {unique}") as port:
        lock = f"--index-url http://ann:a%20{unique}@127.0.0.1:{port}/simple\n{line}"
        made = environment(tmp_path, lock)
        python = ensure(made)
    assert subprocess.run([python, "-c", "import toy"], check=False).returncode == 0
    seen = (tmp_path / "seen.txt").read_text()
    assert "pip" in seen and unique not in seen
    assert unique not in (made.wheels / "lock.txt").read_text()
    assert not made.directory.with_name(f"{made.fingerprint}.tmp").exists()


def write_source(simple: Path, name: str, *requires: str, seen: Path) -> str:
    """Write a source distribution to an index, which notes the command lines of pip while it is built.

    Return its line of a lock file.
    """
    backend = f"""
import pathlib, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    processes = pathlib.Path("/proc").glob("[0-9]*/cmdline")
    lines = [path.read_bytes().replace(bytes(1), b" ").decode(errors="replace") for path in processes]
    with open({str(seen)!r}, "a") as output:
        output.writelines(line + chr(10) for line in lines if "pip" in line)
    wheel = "{name}-1.2-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / wheel, "w") as file:
        file.writestr("{name}.py", "")
        for metadata, text in (
            ("METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.2\\n"),
            ("WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"),
            ("RECORD", ""),
        ):
            file.writestr("{name}-1.2.dist-info/" + metadata, text)
    return wheel
"""
    project = f"[build-system]\nrequires = {list(requires)}\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n"
    source = simple / name / f"{name}-1.2.tar.gz"
    source.parent.mkdir(parents=True)
    with tarfile.open(source, "w:gz") as archive:
        for path, text in (("backend.py", backend), ("pyproject.toml", project), ("PKG-INFO", metadata)):
            entry = tarfile.TarInfo(f"{name}-1.2/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return f"{name}==1.2 \\\n    --hash=sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}\n"


@contextlib.contextmanager
def served(directory: Path, *, user: str, password: str) -> Iterator[int]:
    """Serve a directory over HTTP to who names this user and password; yield the port."""
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") == expected:
                super().do_GET()
            else:
                self.send_response(401)
                self.send_header("WWW-Authenticate", "Basic")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: Handler(*arguments, directory=str(directory))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
