"""Resolve requirements with uv to a lock file for the nodes' processor and Python, and read uv's answer."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from agent.errors import malformed
from agent.spec.frameworks import TENSORFLOW_PACKAGES
from agent.spec.node_kinds import RuntimeKind
from cluster.cli import REINSTALL
from cluster.errors import DeepcdkError
from cluster.programs.python_environment import Wanted
from cluster.programs.secret_detection import masked

LIBC: Final = "manylinux_2_34"
"""The glibc of Amazon Linux 2023. Debian 12 and 13 and Ubuntu 24.04 have newer versions, which also run such wheels."""
PIP_VARIABLES: Final = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}
"""pip's variables for package sources, with uv's equivalents. uv reads its own configuration itself."""
PATIENCE: Final = {"UV_HTTP_RETRIES": "1", "UV_HTTP_CONNECT_TIMEOUT": "5"}
"""Short timeouts for an index that this machine cannot reach. The nodes may reach one."""
BEST_OF_ALL: Final = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
"""Like pip: choose the best version of all indexes, not only of the first index that has the package."""
ONE_BY_ONE: Final = ("--index-strategy", "first-index")
"""Only with this strategy does uv report an index that rejects a password."""
UNREACHABLE: Final = re.compile(r"Failed to fetch|Request failed after")
UNPREPARED: Final = re.compile(
    r"Failed to build|Failed to download and build|build backend returned|Git operation failed"
)
"""Errors when uv must build a package without a wheel, or fetch one from a repository, to read its requirements."""
PLAIN: Final = ("--no-header", "--no-annotate", "--no-universal", "--deps", "--color", "never")
"""Options for the lock file's form, because the program's `[tool.uv.pip]` may ask for another."""
_NO_EXTRA: Final = re.compile(r"package `([A-Za-z0-9][\w.-]*?)==[^`]*` does not have an extra")
_NOTES: Final = (
    "Resolved ",
    "   Updating ",
    "   Building ",
    "      Built ",
    "    Updated ",
    "warning: Requirements file `",
    "warning: No dependencies found",
    "warning: The requested Python version",
)


class UvError(DeepcdkError):
    """Report that uv is missing or broken."""


class UnresolvedHereError(DeepcdkError):
    """Report requirements that this machine cannot resolve: it reaches no index or lacks a compiler. The nodes may
    succeed.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file of a package: its location, hashes and size."""

    url: str
    hashes: frozenset[str] = frozenset()
    """Such as `sha256:...`."""
    size_bytes: int = 0
    """0 if the index does not report it."""
    is_direct: bool = False
    """Whether the nodes download it from its URL, and need no index that has it."""

    @property
    def name(self) -> str:
        """Return the file's name, without its directory or URL."""
        return unquote(urlsplit(self.url).path).rpartition("/")[2]

    @property
    def path(self) -> Path | None:
        """Return the file's path on this machine; None for a file on a server."""
        return Path(unquote(urlsplit(self.url).path)) if self.url.startswith("file:") else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """A package chosen by uv, with its files that fit the nodes."""

    name: str
    version: str = ""
    """"" if only a build can determine it."""
    wheels: tuple[File, ...] = ()
    sdist: File | None = None
    directory: Path | None = None
    """The source directory on this machine."""
    repository: str = ""
    """URL of its git repository."""
    commit: str = ""
    subdirectory: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """uv's answer: whether the requirements can be met, the packages, and its messages."""

    fits: bool
    found: tuple[Package, ...] = ()
    """The packages; () if the requirements cannot be met."""
    words: str = ""
    """uv's messages, with passwords masked."""

    @property
    def packages(self) -> dict[str, str]:
        """Return the versions of the packages, by name. A version is "" if only a build can determine it."""
        return {package.name: package.version for package in self.found}

    @property
    def tensorflow(self) -> str:
        """Return the version of TensorFlow; "" if uv has not chosen it."""
        return next((self.packages[name] for name in TENSORFLOW_PACKAGES if name in self.packages), "")

    @property
    def without_extra(self) -> frozenset[str]:
        """Return the packages whose extra uv ignored, because the chosen version does not have it."""
        return frozenset(_NO_EXTRA.findall(self.words))

    @property
    def reasons(self) -> str:
        """Return uv's messages without its progress notes."""
        return "\n".join(line for line in self.words.splitlines() if not line.startswith(_NOTES))


def ask(
    wanted: Wanted,
    kind: RuntimeKind,
    environ: Mapping[str, str],
    *,
    roots: Sequence[str] = (),
    constraints: Sequence[str] = (),
    excludes: Sequence[str] = (),
    find_links: str = "",
    preferred: Mapping[str, str] = {},
    options: Sequence[str] = (),
) -> Answer:
    """Resolve a program's requirements and `roots`, further requirement lines, with uv, for nodes of a kind.

    Return uv's answer. If the requirements cannot be met, its `fits` is False. `constraints` limit the versions of
    packages that are needed. `excludes` are packages to leave out even if they are needed. `find_links` is an
    additional directory of wheels. `preferred` versions are chosen if they are allowed. `options` are more options for
    uv.

    Raises UnresolvedHereError if this machine cannot resolve the requirements, and UvError if uv does not run.
    """
    with tempfile.TemporaryDirectory() as name:
        # Use our own output file: `output-file` in the program's pyproject.toml may name a file of the user.
        lock, limits, left_out = (
            Path(name) / part for part in ("pylock.program.toml", "constraints.txt", "excludes.txt")
        )
        stand_ins = (
            f'[[packages]]\nname = "{name}"\nversion = "{version}"\nwheels = []\n'
            for name, version in preferred.items()
        )
        if preferred:
            lock.write_text("\n".join(['lock-version = "1.0"\ncreated-by = "deepcdk"', *stand_ins]), encoding="utf-8")
        limits.write_text("\n".join(constraints), encoding="utf-8")
        left_out.write_text("\n".join(excludes), encoding="utf-8")
        done = subprocess.run(
            [
                *(uv_program(), "pip", "compile", *wanted.files, "-"),
                *("--python", sys.executable, "--python-version", kind.python),
                *("--python-platform", f"{kind.processor}-{LIBC}"),
                *("--constraint", str(limits), "--excludes", str(left_out)),
                *("--format", "pylock.toml", "--output-file", str(lock)),
                *("--no-python-downloads", *PLAIN, *options),
            ],
            cwd=wanted.directory,
            env={**uv_environment(environ, find_links), **BEST_OF_ALL},
            input="".join(f"{line}\n" for line in (*wanted.lines, *roots)),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        words = masked(done.stderr).strip()
        found = _packages(lock, wanted.directory) if done.returncode == 0 else ()
    answer = Answer(fits=done.returncode == 0, found=found, words=words)
    check_answer(answer, done.returncode)
    return answer


def _packages(lock: Path, directory: Path) -> tuple[Package, ...]:
    """Read the packages from uv's PEP 751 lock file for one platform. Raises UvError."""
    try:
        document = tomllib.loads(lock.read_text(encoding="utf-8"))
        return tuple(_package(each, lock.parent, directory) for each in document.get("packages", ()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UvError(f"uv wrote a lock file that deepcdk cannot read: {malformed(error)}", remedy=REINSTALL) from None


def _package(entry: Mapping[str, Any], beside: Path, directory: Path) -> Package:
    """Build a package from its entry in a lock file. Its paths are relative to `beside`, or to the program's
    `directory`.
    """
    wheels = [_file(each, beside) for each in entry.get("wheels", ())]
    sdist = _file(entry["sdist"], beside) if "sdist" in entry else None
    if archive := entry.get("archive"):
        given = dataclasses.replace(_file(archive, beside), is_direct=True)
        wheels, sdist = ([given], None) if given.name.endswith(".whl") else ([], given)
    vcs, local = entry.get("vcs", {}), entry.get("directory", {})
    return Package(
        name=entry["name"],
        version=entry.get("version", ""),
        wheels=tuple(wheels),
        sdist=sdist,
        directory=_resolved(local["path"], beside, directory) if local else None,
        repository=vcs.get("url") or vcs.get("path", ""),
        commit=vcs.get("commit-id", ""),
        subdirectory=(vcs or entry.get("archive", {}) or local).get("subdirectory", ""),
    )


def _file(entry: Mapping[str, Any], beside: Path) -> File:
    """Build a file from its entry in a lock file. The path of a local file is relative to `beside`."""
    url = entry.get("url") or (beside / entry["path"]).resolve().as_uri()
    path = File(url=url).path
    return File(
        url=url,
        hashes=frozenset(f"{kind}:{value.lower()}" for kind, value in entry.get("hashes", {}).items()),
        size_bytes=entry.get("size") or (path.stat().st_size if path and path.is_file() else 0),
    )


def _resolved(path: str, beside: Path, directory: Path) -> Path:
    """Return the absolute path of a source directory in a lock file.

    uv writes the path relative to the lock file's directory, `beside`, or as the user gave it, relative to the
    program's `directory`.
    """
    places = [beside / path, directory / path]
    return next((place.resolve() for place in places if place.is_dir()), places[0])


def check_answer(answer: Answer, status: int) -> None:
    """Raise UnresolvedHereError or UvError if uv failed for a reason other than the requirements themselves.

    `status` is uv's exit status.
    """
    if status == 0:
        return
    last = answer.words.splitlines()[-1].strip().removeprefix("cause: ") if answer.words else ""
    if refused := re.search(r"HTTP status \w+ error \((\d+ [^)]*)\) for url \(([^)]+)\)", answer.words):
        raise UnresolvedHereError(
            f"{masked(refused[2])} returned {refused[1]}",
            remedy="correct the URL, or give uv the password of this server: in netrc, or in UV_INDEX_NAME_USERNAME "
            "and UV_INDEX_NAME_PASSWORD (NAME is the name of the index in uv's settings)",
        )
    if UNREACHABLE.search(answer.words):
        found = re.search(r"https?://[^\s`)]+", answer.words)
        url = found[0] if found else ""
        if proxy := _proxy(url):
            raise UnresolvedHereError(
                f"this machine cannot download from {url} through the proxy {masked(proxy)}: {last}",
                remedy="check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY (http://USER:PASSWORD@HOST:PORT if the proxy asks "
                "for a password), or name the index's host in NO_PROXY",
            )
        raise UnresolvedHereError(
            f"this machine cannot download from {url or 'a package index'}: {last}",
            remedy="correct the cause that this message names, such as the network or a certificate (SSL_CERT_FILE), "
            "or set UV_DEFAULT_INDEX or PIP_INDEX_URL to an index that this machine can reach",
        )
    if UNPREPARED.search(answer.words):
        raise UnresolvedHereError(
            f"this machine cannot download or build a package that has no wheel:\n{answer.reasons}",
            remedy="check the address of the repository and your access to it: `git ls-remote URL` must work on this "
            "machine"
            if "Git operation failed" in answer.words
            else "require a version that has a wheel, or install what the build needs on this machine",
        )
    if not answer.words:
        ended = f"was ended by signal {-status}" if status < 0 else f"exited with status {status} and no message"
        remedy = "repeat the command, with more free memory" if status == -signal.SIGKILL else "repeat the command"
        raise UvError(f"uv {ended}", remedy=f"{remedy}; if `uv --version` fails too, {REINSTALL}")


def _proxy(url: str) -> str:
    """Return the address of the HTTP proxy for a URL; "" for none."""
    parts, proxies = urlsplit(url), getproxies()
    if not parts.hostname or proxy_bypass(parts.hostname):
        return ""
    return proxies.get(parts.scheme) or proxies.get("all", "")


def uv_program() -> str:
    """Return the path of uv, one of deepcdk's requirements. Raises UvError if it is not installed."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        raise UvError(
            "uv is not installed, but deepcdk needs it to resolve the requirements of programs", remedy=REINSTALL
        ) from None


def uv_environment(environ: Mapping[str, str], find_links: str = "") -> dict[str, str]:
    """Return the environment variables for uv: `environ`, with the short timeouts of PATIENCE unless it sets them.

    pip's variables for package sources apply if uv's own are not set. `find_links` is an additional directory of
    wheels.
    """
    found = {**PATIENCE, **environ}
    for pips, uvs in PIP_VARIABLES.items():
        if (value := environ.get(pips)) and uvs not in environ:
            found[uvs] = ",".join(value.split()) if uvs == "UV_FIND_LINKS" else value
    if find_links:
        found["UV_FIND_LINKS"] = ",".join(filter(None, [found.get("UV_FIND_LINKS", ""), find_links]))
    return found


def write_stand_in(directory: Path, name: str, version: str) -> None:
    """Write a wheel that has only metadata to a directory. It represents a package of the runtime, so that uv does not
    need an index for that package.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
