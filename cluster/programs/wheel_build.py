"""Build wheels on the laptop for packages without one: git repositories, directories and source distributions.

Nodes have neither git nor the user's files. A built wheel is cached by its source, so that the next run uses the same
file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from agent.errors import describe
from agent.spec.node_kinds import RuntimeKind
from cluster.programs.http_download import REFUSED, TruncatedError, fetch, is_public
from cluster.programs.requirements_file import RequirementsError
from cluster.programs.secret_detection import masked
from cluster.programs.uv_compile import LIBC, File, Package, uv_environment, uv_program

DATE: Final = {"SOURCE_DATE_EPOCH": "315532800"}
"""A fixed date, so that the same sources make the same wheel and therefore the same environment on the nodes."""
LINES: Final = 15
PYPI_FILES: Final = "files.pythonhosted.org"
_GLIBC: Final = re.compile(rb"GLIBC_2\.(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WheelBuilder:
    """Build wheels for nodes of a kind, and download files that the nodes cannot download."""

    kind: RuntimeKind
    environ: Mapping[str, str]
    credentials: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict, repr=False)
    """User and password of each host in netrc, by host name, and of each index, by its URL without the user."""

    @property
    def tags(self) -> list[Tag]:
        """Return the tags of wheels that the nodes' Python, glibc and processor can install, best first."""
        libc = int(LIBC.rpartition("_")[2])
        processor = self.kind.processor
        old = [f"manylinux{name}_{processor}" for name in ("2014", "2010", "1")]
        platforms = [f"manylinux_2_{minor}_{processor}" for minor in range(libc, 4, -1)] + old + [f"linux_{processor}"]
        major, minor = map(int, self.kind.python.split("."))
        found = cpython_tags((major, minor), platforms=platforms)
        return [*found, *compatible_tags((major, minor), f"cp{major}{minor}", platforms)]

    def best(self, files: Sequence[File]) -> File | None:
        """Return the wheel among `files` that the nodes would choose, by its tags; None if none fits."""
        ranks = {tag: rank for rank, tag in enumerate(self.tags)}
        rated = [(min((ranks[tag] for tag in _tags(file.name) if tag in ranks), default=None), file) for file in files]
        fitting = [(rank, file) for rank, file in rated if rank is not None]
        return min(fitting, key=lambda pair: pair[0])[1] if fitting else None

    def build(self, package: Package) -> File:
        """Build the wheel of a package that has none for the nodes, or take it from the cache. Return the local file.

        Building downloads the sources, and runs the package's own build code on this machine, which may take minutes. A
        wheel of a local directory is built each time. Raises RequirementsError, for example if the build fails, or if
        the nodes cannot run the wheel.
        """
        source = package.sdist.url if package.sdist else package.repository
        place = cache_directory(self.environ) / _key(source, package.commit, package.subdirectory, self.kind.python)
        wheel = next(place.glob("*.whl"), None) if source else None
        if wheel is None:
            with tempfile.TemporaryDirectory() as name:
                found = self._built(package, Path(name))
                self._check(package, found)
                wheel = _keep(found, place if source else cache_directory(self.environ) / sha256_of(found)[:16])
        self._check(package, wheel)
        return _described(wheel)

    def installable(self, package: Package, file: File) -> File:
        """Return a file of a package in a form that the nodes can install, after downloading it if necessary.

        A local file is returned unchanged, and so is a wheel whose server cannot require a password. If the server may
        require a password, but a request without one succeeds, `is_direct` is set: the nodes use the URL. All other
        wheels are downloaded to the cache, also those with a user or a query in the URL. Raises RequirementsError.
        """
        parts = urlsplit(file.url)
        is_secret = "@" in parts.netloc or bool(parts.query) or parts.hostname in self._index_hosts
        if file.path is not None or not (is_secret or self._may_ask_for_password(parts.hostname or "")):
            return file
        if not is_secret and not self._cached(file).is_file() and is_public(file.url):
            return dataclasses.replace(file, is_direct=True)
        return _described(self.local(package, file))

    def local(self, package: Package, file: File) -> Path:
        """Return the path of a package's file on this machine, after downloading it to the cache if necessary.

        Raises RequirementsError.
        """
        path = file.path or self._cached(file)
        if file.path is None and not path.is_file():
            with tempfile.TemporaryDirectory() as name:
                _keep(self._downloaded(package, file, Path(name)), path.parent)
        return path

    def _cached(self, file: File) -> Path:
        """Return the path of a downloaded file in the cache, also if it is not there yet."""
        parts = urlsplit(file.url)
        key = _key(parts.netloc.rpartition("@")[2], parts.path, *sorted(file.hashes))
        return cache_directory(self.environ) / key / file.name

    @property
    def _index_hosts(self) -> set[str]:
        """Return the hosts of the indexes that this machine signs in to."""
        return {urlsplit(address).hostname or "" for address in self.credentials if "/" in address}

    def _may_ask_for_password(self, host: str) -> bool:
        """Return whether a host may require a password: netrc names it, or it may serve files of an index with a
        password.
        """
        return host in self.credentials or (bool(self._index_hosts) and host != PYPI_FILES)

    def _signed(self, url: str) -> tuple[str, str] | None:
        """Return user and password for a URL: its own, those of the closest index, or those of its host in netrc; None
        if there are none.

        Host and port of the index must match, and the longest common path wins. An http URL never gets the password of
        an https index.
        """
        parts = urlsplit(url)
        if parts.username:
            return unquote(parts.username), unquote(parts.password or "")
        indexes = [urlsplit(address) for address in self.credentials if "/" in address]
        secure = [index for index in indexes if parts.scheme == "https" or index.scheme == "http"]
        near = [index for index in secure if _netloc(index) == _netloc(parts)]
        if near:
            best = max(near, key=lambda index: len(os.path.commonpath([index.path, parts.path or "/"])))
            return self.credentials[best.geturl()]
        own = [index.scheme for index in indexes if index.hostname == parts.hostname]
        is_downgrade = parts.scheme == "http" and "https" in own and "http" not in own
        return None if is_downgrade else self.credentials.get(parts.hostname or "")

    def _built(self, package: Package, scratch: Path) -> Path:
        """Build a package's wheel below `scratch`, and return its path. Raises RequirementsError.

        Directories that the build leaves in the source directory are removed.
        """
        source = self._source(package, scratch)
        if package.directory or package.repository:
            source = source / package.subdirectory
        before = _leftovers(source)
        python = next((word for word in (self.kind.python, sys.executable) if self._has(word)), sys.executable)
        command = [uv_program(), "build", "--wheel", "--out-dir", str(scratch / "wheel"), "--python", python]
        self._run(
            package, [*command, "--no-python-downloads", "--color", "never", "--no-create-gitignore", str(source)]
        )
        for path in _leftovers(source) - before:
            shutil.rmtree(path, ignore_errors=True)
        return next((scratch / "wheel").glob("*.whl"))

    def _source(self, package: Package, scratch: Path) -> Path:
        """Return the directory or archive with the package's sources on this machine, downloaded or cloned to `scratch`
        if necessary.
        """
        if package.directory:
            return package.directory
        if package.sdist:
            return package.sdist.path or self._downloaded(package, package.sdist, scratch)
        source = scratch / "source"
        url = package.repository.removeprefix("git+")
        self._run(package, ["git", "clone", "--quiet", "--no-checkout", url, str(source)])
        self._run(package, ["git", "-C", str(source), "checkout", "--quiet", "--detach", package.commit])
        self._run(package, ["git", "-C", str(source), "submodule", "--quiet", "update", "--init", "--recursive"])
        return source

    def _downloaded(self, package: Package, file: File, scratch: Path) -> Path:
        """Download a file to `scratch`, check its SHA-256 if it is known, and return its path. Raises
        RequirementsError.

        A truncated download is repeated once.
        """
        path = scratch / file.name
        try:
            try:
                fetch(file.url, path, self._signed(file.url))
            except TruncatedError:
                fetch(file.url, path, self._signed(file.url))
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None)  # of urllib, such as a refused connection
            text = describe(reason if isinstance(reason, OSError) else error)
            refused = isinstance(error, urllib.error.HTTPError) and error.code in REFUSED
            raise RequirementsError(
                f"{package.name}: cannot download {masked(file.url)}: {masked(text)}",
                remedy="check the password of its index: set UV_INDEX_NAME_USERNAME and UV_INDEX_NAME_PASSWORD (NAME "
                "is the name of the index in uv's settings), or use netrc"
                if refused
                else "repeat the command, or put the wheel of the package in a --find-links directory",
            ) from None
        known = {each for each in file.hashes if each.startswith("sha256:")}
        if known and f"sha256:{sha256_of(path)}" not in known:
            raise RequirementsError(
                f"{package.name}: the SHA-256 of {masked(file.url)} differs from the one in the index",
                remedy="repeat the command; if it fails again, the index or a proxy serves a damaged file: use another "
                "index, or put the wheel of the package in a --find-links directory",
            )
        return path

    def _has(self, python: str) -> bool:
        command = [uv_program(), "python", "find", "--no-python-downloads", "--quiet", python]
        return subprocess.run(command, capture_output=True, env=self._environment, check=False).returncode == 0

    @property
    def _environment(self) -> dict[str, str]:
        return {**DATE, **uv_environment(self.environ), "GIT_TERMINAL_PROMPT": "0"}

    def _run(self, package: Package, command: Sequence[str]) -> None:
        """Run a command that is part of a build. Raises RequirementsError with the last lines of its output if it
        fails.
        """
        try:
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
            output, status = done.stdout, done.returncode
        except FileNotFoundError:
            output, status = f"{command[0]} is not installed on this machine", 127
        if status != 0:
            lines = "\n".join(masked(output).strip().splitlines()[-LINES:])
            raise RequirementsError(
                f"this machine cannot build {package.name}, which has no wheel for the nodes:\n{lines}",
                remedy="fix the cause that this output shows, or require a version that has a wheel",
            )

    def _check(self, package: Package, wheel: Path) -> None:
        """Raise RequirementsError for a wheel that the nodes cannot run: it is for another platform or Python, or for a
        newer glibc.
        """
        cause = ""
        if self.best([File(url=wheel.as_uri())]) is None:
            cause = "contains code compiled for another platform or Python"
        elif (glibc := _glibc(wheel)) > int(LIBC.rpartition("_")[2]):
            cause = f"needs glibc 2.{glibc}"
        if cause:
            raise RequirementsError(
                f"{package.name} has no wheel for the nodes (Linux {self.kind.processor}, Python {self.kind.python}, "
                f"glibc {LIBC.removeprefix('manylinux_').replace('_', '.')}), and the wheel built on this machine, "
                f"{wheel.name}, {cause}",
                remedy="require a version that has a wheel, or build the wheel on a machine like the nodes and name "
                "its directory in a line --find-links DIRECTORY",
            )


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory on this machine in which built and downloaded files are kept. It may not exist."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepcdk" / "wheels"


def _key(*inputs: str) -> str:
    return hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _keep(found: Path, place: Path) -> Path:
    """Copy a wheel to a directory of the cache, atomically. Return its new path."""
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(found, partial := place / f".{found.name}.{os.getpid()}")
    return partial.rename(place / found.name)


def _described(wheel: Path) -> File:
    """Describe a local wheel with its hash and size."""
    return File(url=wheel.as_uri(), hashes=frozenset({f"sha256:{sha256_of(wheel)}"}), size_bytes=wheel.stat().st_size)


def _netloc(parts: SplitResult) -> str:
    """Return host and port of a URL, without the user and the default port."""
    default = ":443" if parts.scheme == "https" else ":80"
    return parts.netloc.rpartition("@")[2].lower().removesuffix(default)


def _leftovers(source: Path) -> set[Path]:
    """Return the paths in a source directory that build backends leave behind; empty for a source archive."""
    return (
        {*source.glob("build"), *source.glob("*.egg-info"), *source.glob("src/*.egg-info")}
        if source.is_dir()
        else set()
    )


def _tags(name: str) -> frozenset[Tag]:
    """Return the tags in a wheel's name; none if the name is invalid."""
    try:
        return parse_wheel_filename(name)[3]
    except InvalidWheelFilename:
        return frozenset()


def _glibc(wheel: Path) -> int:
    """Return the minor version of glibc 2 that the libraries in a locally built wheel need.

    Returns 0 for wheels with another platform tag than linux, and without libraries.
    """
    if "-linux_" not in wheel.name:
        return 0
    with zipfile.ZipFile(wheel) as archive:
        libraries = [archive.read(name) for name in archive.namelist() if ".so" in name]
    return max((int(minor) for library in libraries for minor in _GLIBC.findall(library)), default=0)
