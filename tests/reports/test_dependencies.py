"""Public reports about packages: the laptop resolves them for the nodes, and reports missing ones."""

from __future__ import annotations

import base64
import dataclasses
import http.server
import io
import os
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agent.environment.install_step import reason_lines
from agent.spec.frameworks import HOROVOD_FILE
from agent.spec.node_kinds import RuntimeKind
from cluster.errors import DeepcdkError, UsageError
from cluster.programs import requirements_formats, uv_compile
from cluster.programs.entry_starts import starts
from cluster.programs.environment_choice import PackedProgram, pack
from cluster.programs.import_check import is_in, standard_library, unreachable
from cluster.programs.python_environment import Environment
from cluster.programs.requirements_file import RequirementsError
from cluster.programs.user_program import Program
from cluster.programs.uv_compile import Answer, File, Package, UnresolvedHereError
from cluster.programs.wheel_build import WheelBuilder
from tests.factories import make_master, make_node

PROJECT: Final = Path(__file__).resolve().parents[2]
KIND: Final = "x86_64-py3.12"
WHEEL: Final = "inhouse-2.0-py3-none-any.whl"
BACKEND: Final = """
import pathlib, zipfile
NAME, TAG = {name!r}, {tag!r}
def build_wheel(directory, config_settings=None, metadata_directory=None):
    {fails}
    wheel = f"{{NAME}}-0.1-{{TAG}}.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / wheel, "w") as file:
        for name, text in (
            (f"{{NAME}}.py", pathlib.Path("content.txt").read_text()),
            (f"{{NAME}}-0.1.dist-info/METADATA", f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: 0.1\\n"),
            (f"{{NAME}}-0.1.dist-info/WHEEL", f"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: {{TAG}}\\n"),
            (f"{{NAME}}-0.1.dist-info/RECORD", ""),
        ):
            file.writestr(zipfile.ZipInfo(name), text)
    return wheel
"""
SYSTEM: Final = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory of wheels that replaces the package index; no other index is used."""
    directory = tmp_path / "index"
    for name, version, needs in (
        ("einops", "0.8.1", ""),
        ("einops", "0.7.0", ""),
        ("attrs", "25.0", ""),
        ("opencv-python", "4.1", "numpy"),
        ("torch", "2.13.0", "nvidia-cublas"),
        ("nvidia-cublas", "13.0", ""),
        ("requests", "2.34.2", "pysocks; extra == 'socks'"),
        ("pysocks", "1.7", ""),
    ):
        write_wheel(directory, name, version, needs)
    (tmp_path / "uv.toml").write_text(f"no-index = true\nfind-links = ['{directory}']\n")
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return directory


def write_wheel(directory: Path, name: str, version: str, needs: str = "") -> None:
    directory.mkdir(exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: socks\n"
    with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as file:
        file.writestr(f"{stem}.dist-info/METADATA", metadata + (f"Requires-Dist: {needs}\n" if needs else ""))
        file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")


def write_source(directory: Path, name: str, *, tag: str = "py3-none-any", fails: str = "") -> Path:
    """Write the sources of a package and its build program."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(f"[project]\nname = '{name}'\nversion = '0.1'\n{SYSTEM}")
    (directory / "backend.py").write_text(BACKEND.format(name=name, tag=tag, fails=fails or "pass"))
    (directory / "content.txt").write_text(f"NAME = {name!r}\n")
    return directory


def write_project(tmp_path: Path, script: str = "", **files: str) -> Path:
    directory = tmp_path / "project"
    directory.mkdir(exist_ok=True)
    for name, text in {"train.py": script, **files}.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory


def packed(directory: Path, said: list[str] | None = None, *, launcher: str = "plain", **flags: Any) -> PackedProgram:
    program = Program.from_arguments(str(directory), "train.py", (), **flags)
    nodes = (make_master(kind=KIND), make_node(1, kind=KIND))
    report = (said if said is not None else []).append
    return pack(program, lambda: nodes, 1, launcher, project=PROJECT, report=report)


def test_every_package_is_locked_by_its_hash(tmp_path: Path, index: Path) -> None:
    """Ray #54263: packages were resolved again on a node, without hashes."""
    found = packed(write_project(tmp_path, "import einops", requirements__txt="einops<0.8\nnumpy\nrequests[socks]\n"))
    assert found.environment.over_runtime
    assert found.environment.packages == {"einops": "0.7.0", "pysocks": "1.7"}
    assert found.environment.lock.count("--hash=sha256:") == 2
    assert found.wheels is not None
    with tarfile.open(fileobj=io.BytesIO(found.tree.archive)) as archive:
        lock = archive.extractfile("environment.txt")
        assert lock is not None and f"--find-links ../../{found.wheels.name}/wheels\n" in lock.read().decode()


@pytest.mark.parametrize(
    ("files", "flags", "chosen"),
    [
        ({"pyproject__toml": "[project]\nname='p'\nversion='1'\ndependencies=['einops']\n"}, {}, "pyproject.toml"),
        (
            {
                "pyproject__toml": "[project]\nname='p'\nversion='1'\ndependencies=[]\n"
                "[project.optional-dependencies]\nt=['einops']\n"
            },
            {"requirements": "pyproject.toml", "extras": ["t"]},
            "pyproject.toml",
        ),
        (
            {"pyproject__toml": "[project]\nname='p'\nversion='1'\n[dependency-groups]\nt=['einops']\n"},
            {"requirements": "pyproject.toml", "groups": ["t"]},
            "pyproject.toml",
        ),
        (
            {"pylock__toml": "lock-version='1.0'\ncreated-by='x'\n[[packages]]\nname='einops'\nversion='0.8.1'\n"},
            {},
            "pylock.toml",
        ),
    ],
)
def test_packages_are_read_from_project_file(
    tmp_path: Path, index: Path, files: dict[str, str], flags: dict[str, Any], chosen: str
) -> None:
    """Ray #54263, #51196, skypilot #1305: only requirements.txt was read."""
    said: list[str] = []
    found = packed(write_project(tmp_path, "import einops", **files), said, **flags)
    assert found.environment.packages == {"einops": "0.8.1"}
    assert f"packages from {chosen}" in said


def test_uv_lock_takes_precedence_over_pyproject(tmp_path: Path, index: Path) -> None:
    """Ray #51196: a lock file given as requirements was rejected."""
    text = "[project]\nname='p'\nversion='1'\nrequires-python='>=3.10'\ndependencies=['einops<0.8']\n"
    directory = write_project(tmp_path, "import einops", pyproject__toml=text)
    subprocess.run([uv_compile.uv_program(), "lock", "--quiet"], cwd=directory, check=True)
    said: list[str] = []
    assert packed(directory, said).environment.packages == {"einops": "0.7.0"}
    assert "packages from uv.lock (not read: pyproject.toml; to choose: --requirements FILE)" in said
    assert packed(directory, requirements="uv.lock").environment.packages == {"einops": "0.7.0"}


@pytest.fixture
def private_index(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve one package at HOST:PORT/packages to a user with the password or token s3cret."""
    accepted = [f"Basic {base64.b64encode(pair).decode()}" for pair in (b"ann:s3cret", b"s3cret:")]
    write_wheel(tmp_path / "private", "inhouse", "2.0")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.headers.get("Authorization") in accepted or self.path.startswith("/open/")
            (wheel,) = (tmp_path / "private").iterdir()
            page = f'<a href="{os.environ.get("FILES", "/files")}/{wheel.name}">{wheel.name}</a>'.encode()
            body = wheel.read_bytes() if ".whl" in self.path else page if "/inhouse/" in self.path else b""
            self.send_response((200 if body else 404) if is_known else 401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Type", "application/zip" if ".whl" in self.path else "text/html")
            self.send_header("Content-Length", str(len(body) * is_known))
            self.end_headers()
            cut = is_known and len(body) > 0 and (left := int(os.environ.get("TRUNCATED", "0"))) > 0
            if cut:
                os.environ["TRUNCATED"] = str(left - 1)
            self.wfile.write(body[: len(body) // 2 if cut else None] if is_known else b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        (tmp_path / "uv.toml").write_text("")
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


SIGN_INS: Final = {
    "token": {"UV_DEFAULT_INDEX": "http://s3cret@{0}/packages"},
    "token, empty password": {"PIP_INDEX_URL": "http://s3cret:@{0}/packages"},
    "password": {"UV_DEFAULT_INDEX": "http://ann:s3cret@{0}/packages"},
    "variables": {
        "UV_DEFAULT_INDEX": "corp-x=http://{0}/packages",
        "UV_INDEX_CORP_X_USERNAME": "ann",
        "UV_INDEX_CORP_X_PASSWORD": "s3cret",
    },
    "netrc": {"UV_DEFAULT_INDEX": "http://{0}/packages"},
    "direct": {"DIRECT": "inhouse @ http://s3cret@{0}/files/" + WHEEL},
    "signed": {"DIRECT": "inhouse @ http://{0}/open/" + WHEEL + "?Signature=s3cret"},
}


@pytest.mark.parametrize("case", SIGN_INS)
def test_laptop_uploads_packages_only_it_can_download(
    tmp_path: Path, private_index: str, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Nodes could not sign in, and a direct URL with a token was in the lock file."""
    variables = {name: value.format(private_index) for name, value in SIGN_INS[case].items()}
    requirement = variables.pop("DIRECT", "inhouse")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if case == "netrc":
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login ann password s3cret\n")
    said: list[str] = []
    found = packed(write_project(tmp_path, "import inhouse", requirements__txt=f"{requirement}\n"), said)
    assert found.wheels is not None and found.environment.download_bytes == 0
    assert "inhouse==2.0 \\\n    --hash=sha256:" in found.environment.lock
    assert "s3cret" not in "\n".join([*said, found.environment.lock])
    assert private_index not in found.environment.lock


def test_nodes_download_direct_url(tmp_path: Path, private_index: str) -> None:
    """Nodes looked for the package in their index."""
    url = f"http://{private_index}/open/{WHEEL}"
    found = packed(write_project(tmp_path, "import inhouse", requirements__txt=f"inhouse @ {url}\n"))
    assert f"inhouse @ {url} \\\n    --hash=sha256:" in found.environment.lock
    assert found.environment.packages == {"inhouse": "2.0"}


@pytest.mark.parametrize("where", ["netrc", "index", "uv.toml"])
def test_nodes_download_public_files_of_index_with_login(
    tmp_path: Path, private_index: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Because netrc had one password for the host, the laptop also uploaded its public wheels."""
    other = private_index.replace("127.0.0.1", "localhost")
    (tmp_path / "netrc").write_text("machine localhost login ann password stale\n" if where == "netrc" else "")
    monkeypatch.setenv("FILES", f"http://{other}/open")
    if where == "uv.toml":
        (tmp_path / "uv.toml").write_text(f"index-url = 'http://ann:s3cret@{private_index}/packages'\n")
    elif where == "index":
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://ann:s3cret@{private_index}/packages")
    direct = f"inhouse @ http://{other}/open/{WHEEL}"
    requirement = direct if where == "netrc" else "inhouse"
    found = packed(write_project(tmp_path, "import inhouse", requirements__txt=f"{requirement}\n"))
    assert found.wheels is None
    assert f"{direct} \\\n    --hash=sha256:" in found.environment.lock


@pytest.mark.parametrize("where", ["uv.toml", "files elsewhere"])
def test_laptop_uploads_packages_of_index_with_password(
    tmp_path: Path, private_index: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Packages of such an index were locked by name only, and nodes asked PyPI for them."""
    (tmp_path / "netrc").write_text("machine localhost login ann password s3cret\n" if "files" in where else "")
    if "files" in where:
        monkeypatch.setenv("FILES", f"http://{private_index.replace('127.0.0.1', 'localhost')}/files")
    (tmp_path / "uv.toml").write_text(f"[[index]]\nurl = 'http://ann:s3cret@{private_index}/packages'\n")
    found = packed(write_project(tmp_path, "import inhouse", requirements__txt="inhouse\n"))
    assert found.wheels is not None
    assert "inhouse==2.0 \\\n    --hash=sha256:" in found.environment.lock
    assert "http" not in found.environment.lock


def test_each_index_of_a_host_has_its_own_password(tmp_path: Path) -> None:
    """With the indexes of two projects on one GitLab, the second one's token was sent for both."""
    environ = {
        "NETRC": str(tmp_path / "netrc"),
        "XDG_CONFIG_HOME": str(tmp_path),
        "UV_INDEX": "http://u:one@host/projects/1/packages http://u:two@host:81/projects/2/packages",
        "UV_DEFAULT_INDEX": "http://u:three@host/projects/3/packages",
    }
    (tmp_path / "netrc").write_text("machine host login u password four\nmachine other login u password five\n")
    known = requirements_formats.credentials(tmp_path, environ)
    builder = WheelBuilder(kind=RuntimeKind(processor="x86_64", python="3.12"), environ=environ, credentials=known)
    asked = ("host/projects/1/files/a", "host:81/projects/2/files/a", "host/projects/3/files/a", "other/a", "third/a")
    assert [(builder._signed(f"http://{url}") or ("", ""))[1] for url in asked] == ["one", "two", "three", "five", ""]


@pytest.mark.parametrize(
    ("index", "url", "is_signed"),
    [
        ("https://h.com:8443/packages/", "https://h.com:8443/files/a.whl", True),
        ("https://h.com:8443/packages/", "http://h.com/a.whl", False),
        ("https://h.com:8443/packages/", "http://h.com:8443/packages/a.whl", False),
        ("https://h.com:8443/packages/", "https://h.com/a.whl", False),
        ("https://h.com/packages/", "http://h.com/packages/a.whl", False),
        ("https://h.com/packages/", "https://H.com:443/a.whl", True),
        ("http://h.com/packages/", "https://h.com/a.whl", True),
        ("http://h.com:81/packages/", "http://h.com:81/a.whl", True),
        ("http://[::1]:81/packages/", "http://[::1]:81/a.whl", True),
        ("http://[::1]:81/packages/", "http://[::2]:81/a.whl", False),
    ],
)
def test_index_password_is_sent_only_to_its_host_and_port_and_encrypted(
    tmp_path: Path, index: str, url: str, is_signed: bool
) -> None:
    """If an https index listed a link to http, its password was sent there."""
    (tmp_path / "netrc").write_text("machine files.com login u password n\n")
    environ = {"NETRC": str(tmp_path / "netrc"), "XDG_CONFIG_HOME": str(tmp_path)}
    builder = WheelBuilder(kind=RuntimeKind(processor="x86_64", python="3.12"), environ=environ)

    def signed(index: str, url: str) -> tuple[str, str] | None:
        known = requirements_formats.credentials(tmp_path, {**environ, "UV_INDEX": index})
        return dataclasses.replace(builder, credentials=known)._signed(url)

    assert signed(index.replace("//", "//u:s3cret@"), url) == (("u", "s3cret") if is_signed else None)
    assert signed(index, "https://files.com:9/a.whl") == signed(index, "http://files.com/a.whl") == ("u", "n")
    assert signed("https://files.com/packages", "http://files.com/a.whl") is None


@pytest.mark.parametrize(
    "settings",
    [
        "index = 'x'",
        "index = ['x']",
        "index = 5",
        "index = [{url = 'https://[x'}]",
        "index = {url = 'https://host'}",
        "extra-index-url = 5",
        "pip = {extra-index-url = 5, index-url = 'https://[x'}",
    ],
)
def test_malformed_index_is_left_to_uv(tmp_path: Path, settings: str) -> None:
    """`[tool.uv] index = "x"` raised an AttributeError, and `https://[x` a ValueError."""
    environ = {"NETRC": "/", "XDG_CONFIG_HOME": str(tmp_path / "none"), "UV_INDEX": "https://[y https://u:p@host/"}
    (tmp_path / "pyproject.toml").write_text(f"[tool.uv]\n{settings}\n")
    (tmp_path / "uv.toml").write_text(f"{settings}\n")
    assert requirements_formats.credentials(tmp_path, environ) == {"https://host/": ("u", "p")}
    assert requirements_formats.index_options(tmp_path, environ) == set()


@pytest.mark.parametrize(
    "lock",
    ["packages = 'x'", "packages = 5", "packages = ['x']", "packages = [{sdist = 'x'}]", "packages = [{wheels = 5}]"],
)
def test_malformed_lock_file_is_reported_with_its_name(tmp_path: Path, lock: str) -> None:
    """`packages = "x"` in pylock.toml raised an AttributeError."""
    project = write_project(tmp_path, "import einops", pylock__toml=f"{lock}\n")
    with pytest.raises(RequirementsError, match=r"pylock\.toml is not a lock file of PEP 751"):
        packed(project)


@pytest.mark.parametrize("most", [1, 2])
def test_incomplete_download_is_retried_once(
    tmp_path: Path, private_index: str, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """A part of a wheel was kept as the wheel."""
    monkeypatch.setenv("TRUNCATED", str(most))
    builder = WheelBuilder(
        kind=RuntimeKind(processor="x86_64", python="3.12"),
        environ={"XDG_CACHE_HOME": str(tmp_path / "cache")},
        credentials={f"http://{private_index}/packages": ("ann", "s3cret")},
    )
    file = File(url=f"http://{private_index}/files/{WHEEL}")
    if most == 2:
        with pytest.raises(RequirementsError, match=r"received [\d,]+ of [\d,]+ bytes") as caught:
            builder.installable(Package(name="inhouse"), file)
        assert "repeat the command" in caught.value.remedy
    else:
        brought = builder.installable(Package(name="inhouse"), file).path
        assert brought is not None and zipfile.is_zipfile(brought)


def test_wrong_file_password_is_reported_with_variables_to_set(private_index: str, tmp_path: Path) -> None:
    """The suggested fix was a directory of wheels."""
    builder = WheelBuilder(
        kind=RuntimeKind(processor="x86_64", python="3.12"),
        environ={"XDG_CACHE_HOME": str(tmp_path / "cache")},
        credentials={f"http://{private_index}/packages": ("oauth2accesstoken", "")},
    )
    with pytest.raises(RequirementsError, match="401") as caught:
        builder.installable(Package(name="inhouse"), File(url=f"http://{private_index}/files/{WHEEL}"))
    assert "UV_INDEX_NAME_PASSWORD" in caught.value.remedy


def test_unreadable_netrc_is_ignored(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Netrc files of other programs may have lines that Python cannot read."""
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text("machine x bogus\n")
    assert packed(write_project(tmp_path, requirements__txt="einops\nattrs\n")).environment.packages
    assert capsys.readouterr().err.count("netrc is not used") == 1


def test_wrong_index_password_is_reported_but_not_printed(
    tmp_path: Path, private_index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token in the user part of a URL was printed."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://wr0ng@{private_index}/packages")
    with pytest.raises(DeepcdkError, match="401") as caught:
        packed(write_project(tmp_path, "import inhouse", requirements__txt="inhouse\n"))
    assert "wr0ng" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("poetry.lock", "poetry export"),
        ("environment.yml", "pip list --format=freeze"),
        ("Pipfile", "pipenv requirements"),
        ("setup.py", "echo '-e .' > requirements.txt"),
        ("setup.cfg", "echo '-e .' > requirements.txt"),
    ],
)
def test_unsupported_file_is_reported_with_export_command(tmp_path: Path, name: str, command: str) -> None:
    """Ray #50961, skypilot #1305: the ImportError came after nodes had been started."""
    directory, said = write_project(tmp_path, "import einops"), list[str]()
    (directory / name).touch()
    packed(directory, said)
    assert f"{name} is not read" in said[0] and command in said[0]
    assert "einops (train.py:1)" in said[1]
    with pytest.raises(UsageError, match="export it first"):
        packed(directory, requirements=name)


@pytest.mark.parametrize(
    "name", ["requirements-dev.txt", "dev-requirements.txt", "requirements.in", "requirements/base.txt"]
)
def test_package_list_with_other_name_is_reported(tmp_path: Path, index: Path, name: str) -> None:
    """Ray #50961: only the ImportError was reported."""
    directory, said = write_project(tmp_path, "import einops"), list[str]()
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text("einops\n")
    packed(directory, said)
    assert f"{name} is not read; to install its packages: --requirements {name}" in said
    assert packed(directory, requirements=name).environment.packages == {"einops": "0.8.1"}


def test_packages_of_inline_script_metadata_are_installed(tmp_path: Path, index: Path) -> None:
    """Ray #54263: uv reads inline metadata (PEP 723), and `uv run train.py` works on the laptop."""
    script = "# /// script\n# requires-python = '>=3.11'\n# dependencies = ['einops<0.8']\n# ///\nimport einops\n"
    directory, said = write_project(tmp_path, script), list[str]()
    found = packed(directory, said)
    assert found.environment.packages == {"einops": "0.7.0"} and said[0] == "packages from train.py"
    (directory / "requirements.txt").write_text("attrs\n")
    assert packed(directory).environment.packages == {"attrs": "25.0"}
    assert packed(directory, requirements="train.py").environment.packages == {"einops": "0.7.0"}


@pytest.mark.parametrize(
    "line", ["get_ipython().system('pip install einops')", "x = get_ipython().run_line_magic('pip', 'install einops')"]
)
def test_command_of_a_converted_notebook_is_rejected(tmp_path: Path, line: str) -> None:
    """`!pip install` from a notebook raised a NameError on billed nodes."""
    with pytest.raises(UsageError, match=r"train.py.*Jupyter command at line 3.*requirements.txt"):
        packed(write_project(tmp_path, f"#!/usr/bin/env python\n# coding: utf-8\n{line}\n"))
    guarded = f"try:\n    {line}\nexcept NameError:\n    pass\ndef f():\n    {line}\n"
    packed(write_project(tmp_path, guarded))


@pytest.mark.parametrize(
    "text",
    [
        "IN_NB = 'get_ipython' in globals() and get_ipython().__class__.__name__ != 'X'",
        "shell = get_ipython().system('ls') if 'get_ipython' in dir() else None",
        "def get_ipython():\n    return Shell()\nget_ipython().system('ls')",
        "from compat import get_ipython\nget_ipython().system('ls')",
        "from compat import *\nget_ipython().system('ls')",
        "get_ipython = Shell\nget_ipython().system('ls')",
        "run = lambda command: get_ipython().system(command)",
        "runs = [lambda: get_ipython().system('ls')]",
        "IN_NB = False and get_ipython().has_trait('kernel')",
    ],
)
def test_script_that_works_with_and_without_jupyter_is_accepted(tmp_path: Path, text: str) -> None:
    """Libraries such as tqdm check whether they run in Jupyter."""
    packed(write_project(tmp_path, f"{text}\n"))


def test_get_ipython_returns_none_in_a_script(tmp_path: Path) -> None:
    """Spyder's header `from IPython import get_ipython` raised an AttributeError of None on billed nodes."""
    line = "get_ipython().run_line_magic('reset', '-sf')"
    with pytest.raises(UsageError, match="Jupyter command at line 2"):
        packed(write_project(tmp_path, f"from IPython import get_ipython\n{line}\n"))


def test_missing_modules_are_listed_before_start(tmp_path: Path, index: Path) -> None:
    """Ray #54263: a missing module caused an ImportError on billed nodes."""
    script = """
import os, yaml, cv2, attr, numpy, imp, distutils.core, nowhere.at.all, helpers
from . import sibling
try:
    import ujson
except ImportError:
    ujson = None
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import pandas
def f():
    import seldom
"""
    files = {"requirements__txt": "opencv-python\nattrs\n", "helpers__py": "import deep\n"}
    said: list[str] = []
    packed(write_project(tmp_path, script, **files), said)
    assert said[-1] == (
        "the nodes may lack imported modules: deep (helpers.py:1), imp (train.py:2, not in their Python), "
        "nowhere (train.py:2), seldom (train.py:12, under a condition); name their packages in requirements.txt"
    )


def test_module_of_similarly_named_package_causes_no_warning() -> None:
    """Ray #54263: names of modules and distributions differ."""
    there = {
        "beautifulsoup4",
        "scikit-image",
        "opencv-python-headless",
        "python-dateutil",
        "pyjwt",
        "dm-haiku",
        "protobuf",
    }
    for module in ("bs4", "skimage", "cv2", "dateutil", "jwt", "haiku", "google"):
        assert is_in(module, there)
    assert not is_in("einops", there)
    assert "tomllib" not in standard_library("3.10") and "imp" in standard_library("3.11")


def git(directory: Path, *words: str) -> str:
    identity = ["-c", "user.name=e", "-c", "user.email=e@example.com"]
    command = ["git", "-C", str(directory), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_git_requirement_is_built_from_resolved_commit(tmp_path: Path, index: Path) -> None:
    """MLServer #1562, sagemaker-python-sdk #4474: nodes have no git."""
    source = write_source(tmp_path / "tinypkg", "tinypkg")
    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-qm", "Add tinypkg")
    directory = write_project(tmp_path, "import tinypkg", requirements__txt=f"tinypkg @ git+file://{source}\n")
    first = packed(directory)
    assert [wheel.name for wheel in first.environment.wheels] == ["tinypkg-0.1-py3-none-any.whl"]
    assert "tinypkg==0.1 \\\n    --hash=sha256:" in first.environment.lock and "git+" not in first.environment.lock
    assert first.tree == packed(directory).tree  # so the nodes keep their environment
    (source / "content.txt").write_text("NAME = 'newer'\n")
    assert first.tree == packed(directory).tree  # not committed
    git(source, "commit", "-qam", "Change it")
    assert first.environment.lock != packed(directory).environment.lock


@pytest.mark.parametrize("line", [".", "-e .", "./lib", "-e ./lib", "lib @ file://{}/lib"])
def test_local_directory_is_built_as_wheel(tmp_path: Path, index: Path, line: str) -> None:
    """kfp-notebook #73: the project itself is a requirement."""
    directory = write_project(tmp_path, "")
    source = write_source(directory / "lib" if "lib" in line else directory, "lib")
    (directory / "requirements.txt").write_text(f"{line.format(directory)}\n")
    found = packed(directory)
    assert [wheel.name for wheel in found.environment.wheels] == ["lib-0.1-py3-none-any.whl"]
    assert not [path for path in source.rglob("*") if path.name == "build" or path.suffix == ".egg-info"]


def test_project_with_build_system_is_installed_with_its_packages(tmp_path: Path, index: Path) -> None:
    """kfp-notebook #73: a package in src/ is imported by its name."""
    directory = write_project(tmp_path, "import lib")
    write_source(directory, "lib")
    assert packed(directory).environment.packages == {"lib": "0.1"}


def test_source_distribution_is_built_on_the_laptop(tmp_path: Path, index: Path) -> None:
    """MLServer #1562: a node that lacks a compiler cannot build it."""
    source = write_source(tmp_path / "old-0.1", "old")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.2\nName: old\nVersion: 0.1\n")
    with tarfile.open(index / "old-0.1.tar.gz", "w:gz") as archive:
        archive.add(source, "old-0.1")
    found = packed(write_project(tmp_path, "import old", requirements__txt="old\n"))
    assert [wheel.name for wheel in found.environment.wheels] == ["old-0.1-py3-none-any.whl"]


def test_wheel_for_another_platform_is_rejected(tmp_path: Path, index: Path) -> None:
    """MLServer #1562: a wheel for this machine does not load on the nodes."""
    directory = write_project(tmp_path, "", requirements__txt="./lib\n")
    write_source(directory / "lib", "lib", tag="cp312-cp312-macosx_11_0_arm64")
    reason = r"lib-0\.1-cp312-cp312-macosx_11_0_arm64\.whl, contains code compiled for another platform or Python"
    with pytest.raises(RequirementsError, match=reason) as failed:
        packed(directory)
    assert "--find-links" in failed.value.remedy


def test_wheel_for_newer_glibc_is_rejected_with_reason(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.programs.wheel_build._glibc", lambda _: 99)
    directory = write_project(tmp_path, "", requirements__txt="./lib\n")
    write_source(directory / "lib", "lib")
    with pytest.raises(RequirementsError, match=r"lib-0\.1-py3-none-any\.whl, needs glibc 2\.99\n"):
        packed(directory)


def test_failed_build_shows_last_lines_of_package(tmp_path: Path, index: Path) -> None:
    """sagemaker-python-sdk #4474: only the installer's own messages were printed."""
    directory = write_project(tmp_path, "", requirements__txt="./lib\n")
    write_source(directory / "lib", "lib", fails="raise SystemExit('mysql_config not found')")
    with pytest.raises(DeepcdkError, match="mysql_config not found"):
        packed(directory)


PIP: Final = """\
Processing ./lib
  Building wheel for lib (pyproject.toml): started
  error: subprocess-exited-with-error

  × Building wheel for lib (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [3 lines of output]
      running build
        indented
      gcc: fatal error: lib.c: No such file or directory
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for lib
ERROR: Failed to build one or more wheels
See above for output.
"""


def test_failed_installation_shows_error_of_package() -> None:
    """sagemaker-python-sdk #4474: pip's "See above for output" was all that was printed."""
    assert reason_lines(PIP) == [
        "Building wheel for lib (pyproject.toml) did not run successfully.",
        "running build",
        "  indented",
        "gcc: fatal error: lib.c: No such file or directory",
    ]
    assert reason_lines("WARNING: retry\nERROR: No matching distribution\n") == ["ERROR: No matching distribution"]


def test_workers_without_gpus_get_cpu_torch(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """owid/etl PR 6530: 2.9 GB of CUDA packages for CPU workers."""
    options: list[tuple[str, ...]] = []
    real = uv_compile.ask

    def ask(*arguments: Any, **more: Any) -> Answer:
        given = tuple(more.pop("options", ()))
        options.append(given)
        if "--torch-backend" not in given:
            return real(*arguments, options=given, **more)
        wheel = File(
            url="http://127.0.0.1/torch-2.13.0%2Bcpu-py3-none-any.whl",
            hashes=frozenset({"sha256:aa"}),
            size_bytes=10**8,
        )
        return Answer(fits=True, found=(Package(name="torch", version="2.13.0+cpu", wheels=(wheel,)),))

    monkeypatch.setattr(uv_compile, "ask", ask)
    said: list[str] = []
    found = packed(write_project(tmp_path, "import torch", requirements__txt="torch\n"), said)
    assert options[-1] == ("--torch-backend", "cpu")
    assert (
        "torch @ http://127.0.0.1/torch-2.13.0%2Bcpu-py3-none-any.whl \\\n    --hash=sha256:aa\n"
        in found.environment.lock
    )
    assert said == ["over the nodes' runtime: torch 2.13.0+cpu; 1 package, 100 MB to download"]


def test_unreachable_index_of_cpu_torch_is_reported(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """owid/etl PR 6530: the larger build is never chosen silently."""
    real = uv_compile.ask

    def ask(*arguments: Any, **more: Any) -> Answer:
        if more.get("options") == ("--torch-backend", "cpu"):
            raise UnresolvedHereError("this machine cannot reach a package index: https://index/: refused")
        return real(*arguments, **more)

    monkeypatch.setattr(uv_compile, "ask", ask)
    said: list[str] = []
    packed(write_project(tmp_path, "import torch", requirements__txt="torch\n"), said)
    assert said[0].startswith("torch is the CUDA build")
    assert "its index could not be reached: https://index/: refused" in said[0]
    assert "2 packages, " in said[1]


def test_requirements_and_entry_accept_any_shell_path(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray #54263: an absolute path inside the payload was rejected with a wrong reason."""
    directory = write_project(tmp_path, "")
    (directory / "sub").mkdir()
    for name in ("sub/more.txt", "sub/go.py"):
        (directory / name).touch()
    (directory / "start.sh").write_text("#!/bin/sh\n")
    (directory / "start.sh").chmod(0o755)
    (directory / "link").symlink_to("sub")
    (tmp_path / "other.txt").write_text("einops\n")
    (tmp_path / "other.py").touch()
    (tmp_path / "alias").symlink_to(directory)
    monkeypatch.chdir(directory / "sub")
    monkeypatch.setenv("HOME", str(tmp_path))

    def made(entry: str = "train.py", requirements: str = "") -> Program:
        return Program.from_arguments(str(tmp_path / "alias"), entry, (), requirements=requirements)

    for path in (
        f"{directory}/sub/more.txt",
        "more.txt",
        "./more.txt",
        "../sub/more.txt",
        "sub/more.txt",
    ):
        assert made(requirements=path).requirements == "sub/more.txt"
    assert made("link/go.py", "link/more.txt").entry == ("link/go.py",)
    for path in ("../../other.txt", "~/other.txt", f"{tmp_path}/other.txt"):
        assert made(requirements=path).requirements == f"{tmp_path}/other.txt"
    for path in (f"{directory}/sub/go.py", "go.py", "./go.py", "../sub/go.py", "~/alias/sub/go.py"):
        assert made(f"{path} --x ../y").entry == ("sub/go.py", "--x", "../y")
        assert made(f"python -u {path}").entry == ("python", "-u", "sub/go.py")
    for path in ("../start.sh", f"{directory}/start.sh"):
        assert made(path).entry == ("./start.sh",)
    assert made("/usr/bin/env python train.py").entry[0] == "/usr/bin/env"
    with pytest.raises(UsageError, match=rf"is {tmp_path}/other\.py, outside of the uploaded directory"):
        made("../../other.py")
    with pytest.raises(UsageError, match="is not a file in "):
        made("nowhere.py")
    assert packed(directory, requirements=str(tmp_path / "other.txt")).environment.packages == {"einops": "0.8.1"}
    assert os.environ["HOME"] == str(tmp_path)


@pytest.mark.parametrize(
    ("entry", "files", "path"),
    [
        ("projects/t.py", {"projects/t.py": "import own.model\n", "own/model.py": ""}, "."),
        ("projects/t.py", {"projects/t.py": "import u\n", "projects/u.py": "import own\n", "own.py": ""}, "."),
        ("t.py", {"t.py": "import own\n", "src/own/__init__.py": ""}, "src"),
        ("sh -c 'python -m own.t'", {"src/own/t.py": "", "setup.py": ""}, "src"),
        ("-m projects.t", {"projects/t.py": "import own\n", "own.py": ""}, ""),
        ("projects/t.py", {"projects/t.py": "import sys\nsys.path.append('.')\nimport own\n", "own.py": ""}, ""),
        ("src/t.py", {"src/t.py": "import rootutils\nrootutils.setup_root('.')\nimport src.u\n", "src/u.py": ""}, ""),
        ("src/t.py", {"src/t.py": "import u\n", "src/u.py": ""}, ""),
        ("a/t.py", {"a/t.py": "import keras\n", "src/keras/u.py": ""}, ""),
        ("t.py", {"t.py": "def f():\n    import own\n", "src/own.py": ""}, ""),
        ("a/t.py", {"a/t.py": "import yaml\n", "yaml/notes.txt": ""}, ""),
        ("sh -c 'cd src && python -m own.t'", {"src/own/t.py": ""}, ""),
        ("sh -c 'PYTHONPATH=src python -m own.t'", {"src/own/t.py": ""}, ""),
        ("env PYTHONPATH=src python -m own.t", {"src/own/t.py": ""}, ""),
        ("python -c 'import own'", {"own.py": "import other\n", "other.py": ""}, ""),
    ],
)
def test_own_modules_outside_python_path_are_reported(
    tmp_path: Path, entry: str, files: dict[str, str], path: str
) -> None:
    """Without `pip install -e .`, minGPT's `projects/adder/adder.py` failed on the nodes with ModuleNotFoundError."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    program = Program.from_arguments(str(tmp_path), entry, ())
    nodes = (make_master(kind=KIND), make_node(1, kind=KIND))
    for variables in ((), ("PYTHONPATH",)):
        said: list[str] = []
        pack(program, lambda: nodes, 1, "plain", project=PROJECT, report=said.append, variables=variables)
        found = [line for line in said if "would not find a module of the program" in line]
        assert [f"Give --env PYTHONPATH={path};" in line for line in found] == [True] * bool(path and not variables)


@pytest.mark.parametrize(
    ("horovod", "horovod_for", "is_listed"), [(True, (), False), (False, ("torch",), False), (False, (), True)]
)
def test_horovod_sources_do_not_replace_built_horovod(
    tmp_path: Path, horovod: bool, horovod_for: tuple[str, ...], is_listed: bool
) -> None:
    """Horovod's `examples/pytorch/pytorch_mnist.py` in a checkout: PYTHONPATH=. would import the unbuilt sources."""
    files = {"examples/pytorch/mnist.py": "import horovod.torch\n", "horovod/__init__.py": "", "horovod/torch.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    begun = list(starts(tmp_path, ["examples/pytorch/mnist.py"]))
    (tmp_path / HOROVOD_FILE).write_text("not a wheel")
    environment = Environment(lock="torch==2.13.0\n", horovod_for=horovod_for, wheels=(tmp_path / HOROVOD_FILE,))
    found = unreachable(tmp_path, begun, list(map(Path, files)), environment, horovod=horovod)
    assert [each.module for each in found] == ["horovod"] * is_listed


def test_project_installed_by_its_requirements_is_found(tmp_path: Path, index: Path) -> None:
    """As in minGPT's README: `pip install -e .`, then `projects/adder/adder.py`."""
    project = write_source(tmp_path / "project", "own")
    (project / "requirements.txt").write_text("-e .\n")
    (project / "own.py").write_text("")
    (project / "projects").mkdir()
    (project / "projects" / "train.py").write_text("import own\n")
    said: list[str] = []
    program = Program.from_arguments(str(project), "projects/train.py", ())
    nodes = (make_master(kind=KIND), make_node(1, kind=KIND))
    pack(program, lambda: nodes, 1, "plain", project=PROJECT, report=said.append)
    assert not [line for line in said if "would not find a module of the program" in line]
