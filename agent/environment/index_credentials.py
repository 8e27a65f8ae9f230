"""Keep the credentials of package indexes off command lines: pip hands its indexes' URLs to the pips that it starts.

To build a package that has no wheel, pip installs what the build needs by a process of its own, whose command line
shows each index's URL as it was given. A netrc file, which only this user may read, holds the credentials instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

NETRC: Final = "NETRC"
"""The variable by which pip finds the file."""
_OPTION: Final = re.compile(
    r"(?P<option>-i|-f|--index-url|--extra-index-url|--find-links)(?P<gap>\s*=\s*|\s*)(?P<url>\S+)"
)


def without_credentials(lock: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """Return a lock file whose options name no credentials, and the user and password of each host.

    A netrc file knows one user for a host. Of two, the second stays in its URL.
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
    """Return `environ` for a pip that finds these credentials; write them to a file in `directory` of this user's.

    What the netrc file of `environ` says of other hosts still holds.
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
        # Python's netrc takes the last entry of a host.
        output.write("".join([there, "\n" if there else "", *entries]))
    return {**environ, NETRC: str(file)}


def _token(text: str) -> str:
    """Return a word as Python's netrc reads it back: in quotes, with a backslash before what would end them."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
