"""Read and change lock files: paths and URLs of wheels, credentials in URLs, hashes. Standard library only."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

_OPTION: Final = re.compile(
    r"(?P<option>-i|-f|--index-url|--extra-index-url|--find-links)(?P<gap>\s*=\s*|\s*)(?P<url>\S+)"
)
_FIND_LINKS: Final = re.compile(r"^((?:-f|--find-links)\s*=?\s*)(\S.*)$", re.MULTILINE)
_PIN: Final = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=\S+)+)$", re.MULTILINE)
"""A package in a lock file, with the hashes of its files."""


def names_an_index(requirements: str) -> bool:
    """Return whether the text of a requirements file sets or disables package indexes, or includes another file."""
    option = re.compile(r"(-[irc]|--index-url\b|--extra-index-url\b|--no-index\b|--(requirement|constraint)\b)")
    return any(option.match(line.strip()) for line in requirements.splitlines())


def with_absolute_paths(lock: str, directory: Path) -> str:
    """Return the text of a lock file in which relative --find-links paths are replaced by absolute ones in `directory`.

    URLs are unchanged. pip would resolve relative paths from the lock file's folder.
    """

    def absolute(option: re.Match[str]) -> str:
        given = _given(option)
        return option[0] if "://" in given else option[1] + shlex.quote(str(directory / given))

    return _FIND_LINKS.sub(absolute, lock)


def with_local_wheels(lock: str) -> str:
    """Return the text of a lock file in which packages with a wheel in a --find-links directory refer to that wheel.

    `NAME==VERSION` becomes `NAME @ file://...` if the wheel's hash is among the package's hashes. Other packages are
    unchanged. The directories in `lock` must be absolute. Without the reference, pip could choose another file of the
    same version from an index, and then reject its hash.
    """
    folders = [Path(each) for each in map(_given, _FIND_LINKS.finditer(lock)) if "://" not in each]
    wheels = [path for folder in folders for path in sorted(folder.glob("*-*.whl"))]

    def located(pin: re.Match[str]) -> str:
        name, version, hashes = pin.groups()
        for path in wheels:
            its_name, its_version, *_ = path.name.split("-")
            if (_normalized(its_name), its_version) == (_normalized(name), version):
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                if f"--hash=sha256:{digest}" in hashes.split():
                    return f"{name} @ {path.as_uri()}{hashes}"
        return pin[0]

    return _PIN.sub(located, lock)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def local_file(lock: str, directory: Path, name: str) -> Path | None:
    """Return the path of the file `name` in a --find-links directory of a lock file's text; None if none has it.

    Relative paths start from the program's `directory`. URLs are skipped.
    """
    given = [_given(option) for option in _FIND_LINKS.finditer(lock)]
    paths = [directory / each / name for each in given if "://" not in each]
    return next((path for path in paths if path.is_file()), None)


def _given(option: re.Match[str]) -> str:
    """Return the value of a --find-links option without quotes and comments."""
    return " ".join(shlex.split(option[2], comments=True))


def without_credentials(lock: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return the text of a lock file without credentials in its URLs, and the user and password for each host.

    A netrc file has one user per host. If a host has several users, the others' credentials stay in the URLs.
    """
    found: dict[str, tuple[str, str]] = {}
    lines = []
    for line in lock.splitlines(keepends=True):
        option = _OPTION.match(line)
        parts = urlsplit(option["url"]) if option else None
        if option and parts and parts.hostname and parts.username is not None and parts.scheme in ("http", "https"):
            credentials = unquote(parts.username), unquote(parts.password or "")
            if found.setdefault(parts.hostname, credentials) == credentials:
                url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
                line = option["option"] + option["gap"] + url + line[option.end() :]
        lines.append(line)
    return "".join(lines), found


def requirement_lines(requirements: str) -> list[str]:
    """Return the lines in the text of a requirements file or lock file, without comments and blank lines."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in requirements.splitlines())
    return [line for line in lines if line]


def wheel_lock(wheels: Path) -> str:
    """Return the text of a lock file for the wheels in a folder: each wheel's name, version and SHA-256.

    Return "" for a folder without wheels. Reads all of them.
    """
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        with wheel.open("rb") as content:
            lines.append(f"{name}=={version} --hash=sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}\n")
    return "".join(lines)
