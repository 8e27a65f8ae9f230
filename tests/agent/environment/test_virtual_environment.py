"""Environments from a lock file: created once, and only from verified packages."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.server
import secrets
import subprocess
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agent.environment import package_index, virtual_environment
from agent.environment.install_step import RuntimeSetupError
from agent.environment.virtual_environment import Installer, VirtualEnvironment
from agent.files.build_once import COMPLETE
from agent.hardware.machine import Platform, this_platform
from tests.agent.environment.wheels import write_source, write_wheel


class Toy(VirtualEnvironment):
    """An environment for tests."""

    name: ClassVar[str] = "the toy environment"
    command: ClassVar[str] = "toys ensure"


pytestmark = pytest.mark.usefixtures("installer")


def environment(tmp_path: Path, lock: str, root: str = "root") -> Toy:
    """Return an environment for a program with these packages."""
    return Toy(
        root=tmp_path / root, lock=lock, program=tmp_path, wheelhouse=tmp_path / "wheelhouse", report=lambda line: None
    )


def toy(tmp_path: Path) -> str:
    """Write a wheel next to the program; return a lock file that refers to it."""
    return "--no-index\n--find-links wheels\n" + write_wheel(tmp_path / "wheels")


def printed(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_environment_depends_on_lock_and_platform_but_not_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Platform(system="Linux", machine="x86_64", libc="glibc-2.34", python=(3, 11))
    others: list[Mapping[str, Any]] = [{"machine": "aarch64"}, {"libc": "glibc-2.36"}, {"python": (3, 12)}]
    changes = [{}, *others]
    found = []
    for change in changes:
        monkeypatch.setattr(virtual_environment, "this_platform", lambda c=change: dataclasses.replace(here, **c))
        found.append(environment(tmp_path, "toy==1").fingerprint)
    assert len({*found, environment(tmp_path, "toy==2").fingerprint}) == 5
    same = environment(tmp_path, "# by uv\n\ntoy==1  # via x\n", root="elsewhere")
    assert same.fingerprint == environment(tmp_path, "toy==1").fingerprint


def test_one_node_downloads_packages_and_others_install_them(tmp_path: Path) -> None:
    lock = toy(tmp_path)
    first = environment(tmp_path, lock)
    first.ensure()
    (tmp_path / "wheels" / "toy-1.2-py3-none-any.whl").unlink()
    for made in (first, environment(tmp_path, lock, root="second")):
        assert printed(made.ensure(), "import toy; print(toy.VERSION)") == "1.2"
        assert sorted(path.name for path in made.root.iterdir()) == [made.fingerprint, f"{made.fingerprint}.lock"]
    (wheel,) = (tmp_path / "wheelhouse" / first.fingerprint).glob("*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(RuntimeSetupError, match=r"(?s)uv pip failed.*toy"):  # it changed on the shared file system
        environment(tmp_path, lock, root="third").ensure()


def test_package_with_wrong_hash_is_rejected_with_its_name(tmp_path: Path) -> None:
    made = environment(tmp_path, toy(tmp_path))
    with zipfile.ZipFile(tmp_path / "wheels" / "toy-1.2-py3-none-any.whl", "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(
        RuntimeSetupError, match=r"(?s)Downloading the packages of the toy environment failed.*toy==1\.2"
    ):
        made.ensure()
    assert not made.complete


def test_incomplete_wheel_of_killed_node_is_downloaded_again(tmp_path: Path) -> None:
    made = environment(tmp_path, toy(tmp_path))
    (wheel,) = (tmp_path / "wheels").iterdir()
    half = tmp_path / "wheelhouse" / made.fingerprint / wheel.name
    half.parent.mkdir(parents=True)
    half.write_bytes(wheel.read_bytes()[:100])
    made.ensure()
    assert half.read_bytes() == wheel.read_bytes()


def test_other_wheel_of_same_version_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = toy(tmp_path)
    environment(tmp_path, lock).ensure()
    write_wheel(tmp_path / "others", build="-1")  # installers prefer a later build
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(tmp_path / "others"))
    second = environment(tmp_path, lock, root="second")
    assert printed(second.ensure(), "import toy; print(toy.BUILD)") == ""


def test_unreachable_index_is_reported_unless_the_lock_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_index, "index_problem", lambda python: "This node cannot use a package index: nowhere")
    line = write_wheel(tmp_path / "wheels")
    with pytest.raises(RuntimeSetupError, match=r"(?s)toy==1\.2.*This node cannot use a package index: nowhere$"):
        environment(tmp_path, line).ensure()
    assert environment(tmp_path, f"--find-links wheels\n{line}").ensure().exists()  # these wheels suffice
    with pytest.raises(RuntimeSetupError) as failed:
        environment(tmp_path, f"--index-url file://{tmp_path}/simple\n{line}").ensure()
    assert "nowhere" not in str(failed.value)


def test_index_password_is_not_on_command_lines_or_in_wheelhouse(tmp_path: Path) -> None:
    """The index requires the password. To build a package without a wheel, pip starts another pip."""
    write_source(tmp_path / "simple", "tool", seen=tmp_path / "seen.txt")
    line = write_source(tmp_path / "simple", "toy", "tool", seen=tmp_path / "seen.txt")
    unique = secrets.token_hex(8)
    with served(tmp_path, user="ann", password=f"a {unique}") as port:
        made = environment(tmp_path, f"--index-url http://ann:a%20{unique}@127.0.0.1:{port}/simple\n{line}")
        assert printed(made.ensure(), "import toy") == ""
    seen = (tmp_path / "seen.txt").read_text()
    assert "pip" in seen and unique not in seen
    assert not [file for file in (tmp_path / "wheelhouse").rglob("*.txt") if unique in file.read_text()]


def test_complete_environment_is_used_even_if_its_root_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = environment(tmp_path, "toy==1")
    (tmp_path / "file").touch()
    with pytest.raises(RuntimeSetupError, match=rf"cannot create {tmp_path}/file/root: .*let user \d+ write to it"):
        environment(tmp_path, "toy==1", root="file/root").ensure()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    (made.root / "0123456789abcdef").mkdir(parents=True)
    (made.root / "0123456789abcdef" / COMPLETE).touch()
    said = rf"does not contain the toy environment, {made.fingerprint}.*0123456789abcdef.*cannot write.*-m toys ensure"
    with pytest.raises(RuntimeSetupError, match=said):
        made.ensure()
    made.directory.mkdir()
    (made.directory / COMPLETE).touch()
    assert made.ensure() == made.directory / "bin" / "python"


def test_failed_step_leaves_no_complete_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = environment(tmp_path, "toy==1")
    made.directory.mkdir(parents=True)
    (made.directory / "left-over").touch()
    temporary = made.root / f"{made.fingerprint}.tmp"

    def fail(command: list[str], *, env: Mapping[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        assert Path(env["TMPDIR"]) == temporary and temporary.is_dir()
        return subprocess.CompletedProcess(command, 3, "WARNING: retrying\nno space left\n")

    monkeypatch.setattr("subprocess.run", fail)
    with pytest.raises(RuntimeSetupError, match=r"^uv venv failed with exit status 3\nno space left$"):
        made.ensure()
    assert not made.directory.exists() and not temporary.exists()


def test_nodes_use_installer_of_image_or_create_one(
    tmp_path: Path, installer: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert environment(tmp_path, "toy==1").installer.root == installer.root
    monkeypatch.setattr(virtual_environment, "DEFAULT_ROOT", tmp_path / "none")
    assert environment(tmp_path, "toy==1").installer.root == tmp_path / "root"
    assert printed(installer.python, "import pip, sys; print(sys.version_info[:2])") == str(this_platform().python)


@contextlib.contextmanager
def served(directory: Path, *, user: str, password: str) -> Iterator[int]:
    """Serve a directory over HTTP to clients with this user and password; yield the port."""
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
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
