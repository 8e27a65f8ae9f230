"""Package indexes of pip: whether a node can reach them, and their credentials.

To build a package that has no wheel, pip starts another pip with each index URL on its command line. So credentials in
URLs are moved to a netrc file that only this user can read.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_TRIES: Final = 2
_PAUSE_S: Final = 1.0
_CONNECT_S: Final = 10.0
NETRC: Final = "NETRC"
"""Environment variable with the path of pip's netrc file."""
ADD_WHEELS: Final = (
    "or, if these are packages of your program, add their wheels next to its requirements file, with the lines "
    "--no-index and --find-links"
)
REMEDY: Final = (
    f"Let the nodes reach an index (through a NAT gateway, or a mirror in pip's configuration), {ADD_WHEELS}; start an "
    "embedded cloud with --packages"
)
ALLOW_INDEX: Final = f"Remove it (`pip config debug` lists pip's files and variables), {ADD_WHEELS}"
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


def index_problem(python: Path) -> str:
    """Return why the pip of `python` cannot reach a package index from here, and how to fix it; "" if it may reach one.

    The result is also "" if pip uses a proxy or if its configuration cannot be read. Connects to the indexes, and waits
    up to 21 s for each of them.
    """
    import urllib.request  # Not at the top: it imports HTTP and TLS, which takes time, and few nodes fetch packages.

    done = subprocess.run([str(python), "-c", _QUESTION], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0 or _PROXIES & urllib.request.getproxies_environment().keys():
        return ""
    indexes, switched_off = json.loads(done.stdout)
    if switched_off:
        return f"This node cannot use a package index: pip's configuration sets no-index. {ALLOW_INDEX}"
    trouble = describe_unreachable(indexes)
    return f"This node cannot use a package index: {trouble}. {REMEDY}" if trouble else ""


def proxy_hint() -> str:
    """Return how to correct pip's proxy variables, with the proxies' addresses but no passwords; "" if none is set."""
    import urllib.request

    proxies = urllib.request.getproxies_environment()
    found = sorted({re.sub(r"^(\w+://)?.*@", r"\1****@", proxies[kind]) for kind in _PROXIES & proxies.keys()})
    return (
        f"pip uses the proxy {', '.join(found)}. If it does not answer or asks for a password, correct HTTPS_PROXY, "
        "HTTP_PROXY and ALL_PROXY (http://USER:PASSWORD@HOST:PORT), or name the index's host in NO_PROXY"
        if found
        else ""
    )


def describe_unreachable(urls: Sequence[str], tries: int = _TRIES) -> str:
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


def write_netrc(
    credentials: Mapping[str, tuple[str, str]], environ: Mapping[str, str], directory: Path
) -> dict[str, str]:
    """Write `credentials` to the file `netrc` in `directory`; return `environ` with NETRC set to the file's path.

    `credentials` maps hosts to (user, password). Only this user can read the file. It also contains the entries of the
    netrc file that `environ` refers to, or of ~/.netrc. Without credentials, nothing is written, and the result equals
    `environ`.
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
