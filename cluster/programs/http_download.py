"""Download files over HTTP, with a password only where it is needed."""

from __future__ import annotations

import base64
import http.client
import shutil
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

REFUSED: Final = (401, 403, 404)
"""Responses of servers to a request without a password. GitHub answers as if the file did not exist."""


class TruncatedError(OSError):
    """Report a download that ended before its last byte."""


def is_public(url: str) -> bool:
    """Request a file, and return whether its server provides it without a password.

    False after an error, and for an HTML page, which is probably a login page. Waits up to 60 s for an answer.
    """
    try:
        with _opened(url, None) as answer:
            return answer.headers.get_content_type() != "text/html"
    except (OSError, http.client.HTTPException):
        return False  # the download reports the error


def fetch(url: str, path: Path, signed: tuple[str, str] | None) -> None:
    """Download a file to `path`. An existing file is overwritten.

    `signed` are user and password, or None. They are sent only if the server requires them. Raises TruncatedError if
    bytes are missing at the end, OSError for other errors of network and disk, and HTTPException. `path` may then be
    incomplete.
    """
    with _answer(url, signed) as answer, path.open("wb") as output:
        shutil.copyfileobj(answer, output)
        expected, received = int(answer.headers.get("Content-Length") or 0), output.tell()
    if received < expected:
        raise TruncatedError(f"received {received:,} of {expected:,} bytes")


def _answer(url: str, signed: tuple[str, str] | None) -> http.client.HTTPResponse:
    """Open a URL. The password is sent only if the server rejects the request without it, or answers
    with an HTML page.
    """
    try:
        answer = _opened(url, None)
        if not signed or answer.headers.get_content_type() != "text/html":
            return answer
        answer.close()
    except urllib.error.HTTPError as error:
        if error.code not in REFUSED or not signed:
            raise
    return _opened(url, signed)


def _opened(url: str, signed: tuple[str, str] | None) -> http.client.HTTPResponse:
    """Open a URL with a timeout of 60 seconds. `signed` are user and password, or None. Raises OSError.

    The certificates of the system and of botocore are trusted. On a Mac, python.org's Python has none of its own. The
    password is not sent to the target of a redirect, and a user in the URL is left out.
    """
    from botocore.httpsession import get_cert_path

    context = ssl.create_default_context()
    context.load_verify_locations(get_cert_path(True))
    parts = urlsplit(url)
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))  # noqa: S310
    if signed:
        word = base64.b64encode(":".join(signed).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {word}")  # a redirect may lead to another host
    opened: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=60, context=context)  # noqa: S310  # uv chose it
    return opened
