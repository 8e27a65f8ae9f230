"""Check that a node reaches the package index of its pip, before pip tries again and again for most of a minute."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": 80, "https": 443}
_TRIES: Final = 2
_PAUSE_S: Final = 1.0
_CONNECT_S: Final = 10.0
REMEDY: Final = (
    "Give the nodes a way to one (a NAT gateway, or a mirror that pip's configuration names), or put the wheels beside "
    "the requirements, with the lines --no-index and --find-links; an embedded cloud has this machine's index with "
    "`start --packages`"
)
# pip's parser knows its defaults, all its configuration files and variables; no command of pip prints their sum.
_PROXIES: Final = frozenset({"http", "https", "all"})
"""Of the variables about proxies those that name one; `no_proxy` alone names none."""
_QUESTION: Final = """
import json
from pip._internal.commands import create_command
options, _ = create_command("install").parser.parse_args([])
indexes = [] if options.no_index or options.proxy else [options.index_url, *options.extra_index_urls]
print(json.dumps([indexes, bool(options.no_index)]))
"""


def missing(python: Path) -> str:
    """Return why the pip of a Python reaches no package index from here, and what to do; "" where it may.

    Where pip goes through a proxy, or does not say where it looks, it may.
    """
    done = subprocess.run([str(python), "-c", _QUESTION], capture_output=True, text=True, check=False)
    if done.returncode != 0 or _PROXIES & urllib.request.getproxies_environment().keys():
        return ""
    indexes, switched_off = json.loads(done.stdout)
    trouble = "pip's configuration says no-index" if switched_off else unreachable(indexes)
    return f"This node has no package index: {trouble}. {REMEDY}" if trouble else ""


def unreachable(urls: Sequence[str], tries: int = _TRIES) -> str:
    """Return which servers cannot be reached, each with the reason; "" where one can, or an index is a directory."""
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
    """Return why no connection to a server can be made; "" where one can."""
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
