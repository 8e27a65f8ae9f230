"""pip: its package indexes, credentials, lock files and errors. Checks that an index can be reached from a node.

To build a package that has no wheel, pip starts another pip with each index URL on its command line. So credentials in
URLs are moved to a netrc file that only this user can read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import socket
import subprocess
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

_PORTS: Final = {"http": 80, "https": 443}
_TRIES: Final = 2
_PAUSE_S: Final = 1.0
_CONNECT_S: Final = 10.0
NETRC: Final = "NETRC"
"""Environment variable with the path of pip's netrc file."""
_OPTION: Final = re.compile(
    r"(?P<option>-i|-f|--index-url|--extra-index-url|--find-links)(?P<gap>\s*=\s*|\s*)(?P<url>\S+)"
)
REMEDY: Final = (
    "Let the nodes reach an index (through a NAT gateway, or a mirror in pip's configuration), "
    "or add the wheels next to "
    "the requirements file, with the lines --no-index and --find-links; start an embedded cloud with --packages"
)
_FIND_LINKS: Final = re.compile(r"^((?:-f|--find-links)\s*=?\s*)(\S.*)$", re.MULTILINE)
_PIN: Final = re.compile(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=\S+)+)$", re.MULTILINE)
"""A package in a lock file, with the hashes of its files."""
ERROR_LINES: Final = 8
FRAMED_LINES: Final = 15
_FRAME: Final = "╰─>"
_PROXIES: Final = frozenset({"http", "https", "all"})
"""The kinds of proxy variables that configure a proxy; `no_proxy` configures none."""
# pip's parser knows its defaults and all its configuration files and variables. No pip command prints the result.
_QUESTION: Final = """
import json
from pip._internal.commands import create_command
options, _ = create_command("install").parser.parse_args([])
indexes = [] if options.no_index or options.proxy else [options.index_url, *options.extra_index_urls]
print(json.dumps([indexes, bool(options.no_index)]))
"""


def missing(python: Path) -> str:
    """Return why the pip of `python` cannot reach a package index from here, and how to fix it; "" if it may reach one.

    The result is also "" if pip uses a proxy or if its configuration cannot be read. Connects to the indexes.
    """
    import urllib.request  # Not at the top: it imports HTTP and TLS, which takes time, and few nodes fetch packages.

    done = subprocess.run([str(python), "-c", _QUESTION], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0 or _PROXIES & urllib.request.getproxies_environment().keys():
        return ""
    indexes, switched_off = json.loads(done.stdout)
    trouble = "pip's configuration sets no-index" if switched_off else unreachable(indexes)
    return f"This node cannot use a package index: {trouble}. {REMEDY}" if trouble else ""


def proxies_in_use() -> str:
    """Return a hint with the addresses in the proxy variables, without passwords; "" if there are none."""
    import urllib.request

    proxies = urllib.request.getproxies_environment()
    found = sorted({re.sub(r"^(\w+://)?.*@", r"\1****@", proxies[kind]) for kind in _PROXIES & proxies.keys()})
    return (
        f"pip uses the proxy {', '.join(found)}. If it does not answer or asks for a password, correct HTTPS_PROXY, "
        "HTTP_PROXY and ALL_PROXY (http://USER:PASSWORD@HOST:PORT), or name the index's host in NO_PROXY"
        if found
        else ""
    )


def unreachable(urls: Sequence[str], tries: int = _TRIES) -> str:
    """Return, as text, the servers in `urls` that cannot be reached, with reasons.

    Return "" as soon as one server can be reached, or if an index is a directory. Each server is tried `tries` times,
    with a pause.
    """
    found: dict[str, str] = {}
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            return ""
        if not (trouble := _connect(parts.hostname, parts.port or _PORTS[parts.scheme], tries)):
            return ""
        found[parts.hostname] = trouble
    return "; ".join(f"{host} cannot be reached ({trouble})" for host, trouble in found.items())


def _connect(host: str, port: int, tries: int) -> str:
    """Return why the last of `tries` connections to a server failed, or "" if one succeeded."""
    trouble = ""
    for number in range(tries):
        if number:
            time.sleep(_PAUSE_S)
        try:
            socket.create_connection((host, port), timeout=_CONNECT_S).close()
            return ""
        except OSError as error:
            trouble = error.strerror or "no answer"
    return trouble


def is_named_in(requirements: str) -> bool:
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
    """Return the text of a lock file, with the URLs of wheels for the packages that --find-links directories contain.

    A wheel's hash must be among the package's hashes; other packages are unchanged. The directories in `lock` must be
    absolute. An index may have another file of the same version. pip could choose that file, and then reject its hash.
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


def netrc_environment(
    credentials: Mapping[str, tuple[str, str]], environ: Mapping[str, str], directory: Path
) -> dict[str, str]:
    """Return `environ` with NETRC set to a new file in `directory`, readable by this user only, with the credentials.

    The new file also contains the entries of the netrc file that `environ` refers to. Without credentials, `environ` is
    unchanged.
    """
    if not credentials:
        return dict(environ)
    file = directory / "netrc"
    entries = [
        f"machine {host} login {_token(user)} password {_token(word)}\n" for host, (user, word) in credentials.items()
    ]
    before = Path(environ.get(NETRC) or Path.home() / ".netrc")
    there = before.read_text(encoding="utf-8") if before.is_file() else ""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as output:
        # Python's netrc uses the last entry of a host.
        output.write("".join([there, "\n" if there else "", *entries]))
    return {**environ, NETRC: str(file)}


def _token(text: str) -> str:
    """Quote a word for Python's netrc parser: in double quotes, with quotes and backslashes escaped."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def requirement_lines(requirements: str) -> list[str]:
    """Return the lines in the text of a requirements file or lock file, without comments and blank lines."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in requirements.splitlines())
    return [line for line in lines if line]


def wheel_lock(wheels: Path) -> str:
    """Return the text of a lock file for the wheels in a folder: each wheel's name, version and SHA-256."""
    lines = []
    for wheel in sorted(wheels.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        with wheel.open("rb") as content:
            lines.append(f"{name}=={version} --hash=sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}\n")
    return "".join(lines)


def reason_lines(output: str) -> list[str]:
    """Return the lines of a failed step's output with the reason: the failed package build's lines, or the last lines.

    pip frames the output of a build, and adds ten lines that do not contain the reason.
    """
    # Warnings of retries differ between nodes. Without them, equal messages of all nodes are reported once.
    lines = [line for line in output.splitlines() if not line.startswith(("WARNING:", "[notice]"))]
    end = next((at for at, line in enumerate(lines) if line.strip(" │╰─>") == "[end of output]"), None)
    begins = [at for at, line in enumerate(lines[:end]) if _FRAME in line] if end is not None else []
    if not begins:
        return lines[-ERROR_LINES:]
    title = next((line for line in reversed(lines[: begins[-1]]) if line.lstrip(" │").startswith("×")), "")
    framed = textwrap.dedent("\n".join(line.replace("│", " ") for line in lines[begins[-1] + 1 : end])).splitlines()
    return [title.strip(" │×"), *framed[-FRAMED_LINES:]]
