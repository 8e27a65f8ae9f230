"""This machine's package index for the hosts, as configured in pip on this machine.

Nothing here names an index. pip itself reports where it searches, including its default. The hosts reach these servers
by name through a relay (`localcloud.network.internet`), and see pip's directories of packages at the same paths.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from localcloud.errors import LocalCloudError, error_text
from localcloud.hosts.images import Bind, MountError

CONFIGURATION: Final = "/etc/pip.conf"
CERTIFICATES: Final = "/etc/pip-certificates.pem"
_PORTS: Final = {"http": 80, "https": 443}
_PROJECT: Final = "pip"
"""A project that every index has. Its page shows which servers store an index's files."""
_TIMEOUT_S: Final = 30.0
# Variables for certificates that the system's list lacks. pip's HTTP library reads the first two.
_CERTIFICATE_VARIABLES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy")
# pip's parser merges the defaults, all configuration files and the variables. No command prints the result.
_QUESTION: Final = """
import json
from pip._internal.commands import create_command
options, _ = create_command("install").parser.parse_args([])
print(json.dumps({
    "indexes": [] if options.no_index else [options.index_url, *options.extra_index_urls],
    "find_links": list(options.find_links), "trusted": list(options.trusted_hosts or []),
    "certificates": options.cert or "", "proxy": options.proxy or "", "client": options.client_cert or "",
}))
"""


class PackageIndexError(LocalCloudError):
    """A package index of this machine that hosts cannot use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipSettings:
    """The locations where this machine's pip searches for packages."""

    indexes: tuple[str, ...]
    """URLs of its indexes, in order. They may contain credentials."""
    find_links: tuple[str, ...] = ()
    """Additional directories and URLs of pages."""
    trusted: tuple[str, ...] = ()
    """Servers whose certificates it does not check."""
    certificates: str = ""
    """File of trusted certificate authorities. Empty for pip's default."""

    def __post_init__(self) -> None:
        for url in self.indexes:
            host = urlsplit(url).hostname or ""
            if urlsplit(url).scheme in _PORTS and (host == "localhost" or _is_address(host)):
                raise PackageIndexError(
                    f"pip's index on this machine is {host}, but the cloud's hosts reach an index only by name and not "
                    "on this machine; set another index-url for pip or a directory as find-links, or start without "
                    "--packages"
                )

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the URLs of indexes and pages on servers."""
        return tuple(url for url in (*self.indexes, *self.find_links) if urlsplit(url).scheme in _PORTS)

    @property
    def directories(self) -> tuple[Path, ...]:
        """Return this machine's directories in which pip searches.

        For an index that is a directory, return its parent directory, which usually contains the files.
        """
        indexes = [Path(unquote(urlsplit(url).path)).parent for url in self.indexes if urlsplit(url).scheme == "file"]
        links = [urlsplit(place) for place in self.find_links]
        return (*indexes, *(Path(unquote(link.path)).expanduser() for link in links if link.scheme in ("", "file")))

    def to_configuration(self) -> str:
        """Return the content of the hosts' pip.conf for these settings."""
        first, *more = self.indexes or ("",)
        lists = {"extra-index-url": more, "find-links": self.find_links, "trusted-host": self.trusted}
        lines = [f"index-url = {first}" if first else "no-index = true"]
        lines += ["\n    ".join([f"{key} =", *values]) for key, values in lists.items() if values]
        lines += [f"cert = {CERTIFICATES}"] if self.certificates else []
        return "\n".join(["[global]", *lines, ""])


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackageIndex:
    """Everything that hosts need to reach this machine's package index."""

    servers: frozenset[str] = frozenset()
    """Names of the servers that hosts must reach."""
    ports: tuple[int, ...] = ()
    binds: tuple[Bind, ...] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Content of each file by its path on the hosts."""

    def install(self, layer: Path) -> None:
        """Write the files into the hosts' layer. They also replace whiteouts, which hide files of this machine."""
        for path, text in self.files.items():
            target = layer / path.lstrip("/")
            target.unlink(missing_ok=True)
            target.write_text(text, encoding="utf-8")
            target.chmod(0o644)


def read_settings(environment: Mapping[str, str]) -> PipSettings:
    """Return the settings of this machine's pip: this Python's, or if it has none, the base Python's or python3's.

    Raises PackageIndexError if no Python has pip, or like `parse_settings`.
    """
    base = getattr(sys, "_base_executable", "") or sys.executable
    commands = [[python, "-c", _QUESTION] for python in dict.fromkeys((sys.executable, base, "python3"))]
    for command in commands:
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return parse_settings(json.loads(done.stdout), environment)
    raise PackageIndexError(
        f"cannot read the package index from this machine's pip: {done.stderr[-500:].strip()}\n"
        "install pip, or start without --packages"
    )


def parse_settings(document: Mapping[str, Any], environment: Mapping[str, str]) -> PipSettings:
    """Parse pip's answer. `environment` has the variables with proxies and certificate files.

    Raises PackageIndexError for settings that hosts cannot use: a proxy, a client certificate, or an index by address.
    """
    if document["proxy"] or any(environment.get(name) or environment.get(name.upper()) for name in _PROXY_VARIABLES):
        raise PackageIndexError(
            "pip on this machine uses a proxy (its setting `proxy`, or a variable such as https_proxy), which hosts "
            "cannot use; unset it and set an index that needs none, or start without --packages"
        )
    if document["client"]:
        raise PackageIndexError(
            f"pip's index requires the client certificate {document['client']}, which hosts cannot use; set another "
            "index, or start without --packages"
        )
    named = (environment.get(name, "") for name in _CERTIFICATE_VARIABLES)
    return PipSettings(
        indexes=tuple(document["indexes"]),
        find_links=tuple(_without_home(place) for place in document["find_links"]),
        trusted=tuple(document["trusted"]),
        certificates=document["certificates"] or next(filter(None, named), ""),
    )


def resolve(settings: PipSettings) -> PackageIndex:
    """Return everything that hosts need for these settings. Each server is asked where it stores its files.

    Raises PackageIndexError for an unreadable page of an index, for unreadable certificates, and for a directory that
    hosts cannot see.
    """
    urls = [urlsplit(found) for url in settings.servers for found in (url, *_files_of(url, settings))]
    files = {CONFIGURATION: settings.to_configuration()}
    if settings.certificates:
        try:
            files[CERTIFICATES] = Path(settings.certificates).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise PackageIndexError(
                f"cannot read pip's certificates in {settings.certificates}: {reason}; correct pip's setting "
                f"`cert` or the variable that names the file ({', '.join(_CERTIFICATE_VARIABLES)})"
            ) from None
    return PackageIndex(
        servers=frozenset(url.hostname or "" for url in urls),
        ports=tuple(sorted({url.port or _PORTS[url.scheme] for url in urls})),
        binds=tuple(_bind(path) for path in dict.fromkeys(settings.directories) if path.is_dir()),
        files=files,
    )


def _bind(directory: Path) -> Bind:
    """Return a bind of a directory at the same path. Raises PackageIndexError if hosts cannot have it there."""
    try:
        return Bind.parse(f"{directory}:{directory}")
    except MountError:
        raise PackageIndexError(
            f"pip on this machine searches the directory {directory}, which hosts cannot see: its path must be "
            "absolute and not in /proc, /sys, /dev or /run; set another find-links or index-url for pip, or start "
            "without --packages"
        ) from None


def _files_of(url: str, settings: PipSettings) -> list[str]:
    """Request a project's page of the index `url`, or the page `url` itself if it is not an index.

    Return the page's final URL, and one URL of each server that it links to. Raises PackageIndexError if the page
    cannot be read.
    """
    plain = urlsplit(url)
    address = plain._replace(netloc=plain.netloc.rpartition("@")[2]).geturl()
    page = f"{address.rstrip('/')}/{_PROJECT}/" if url in settings.indexes else address
    request = urllib.request.Request(page, headers=_credentials(plain))  # noqa: S310  # an index of pip's, by HTTP
    try:
        with urllib.request.urlopen(  # noqa: S310  # as above
            request, timeout=_TIMEOUT_S, context=_context(settings, plain)
        ) as answer:
            found = links(answer.read().decode(errors="replace"), answer.url)
            return [answer.url, *found]
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", error)  # of urllib, such as a refused connection
        reason = error_text(cause) if isinstance(cause, Exception) else cause
        raise PackageIndexError(
            f"cannot read this machine's package index at {page}: {reason}; check pip's settings and the network, or "
            "start without --packages"
        ) from None


def links(page: str, address: str) -> list[str]:
    """Return one URL of each server that a page links to. `address` is the page's own URL."""
    found = [urljoin(address, link) for link in re.findall(r'href="([^"]+)"', page)]
    return list({urlsplit(url).netloc: url for url in found if urlsplit(url).scheme in _PORTS}.values())


def _credentials(url: SplitResult) -> dict[str, str]:
    if not url.username:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _context(settings: PipSettings, url: SplitResult) -> ssl.SSLContext:
    """Return the TLS settings for a server: pip's certificates, or no check if pip trusts it."""
    if {url.hostname, url.netloc.rpartition("@")[2]} & set(settings.trusted):
        return ssl._create_unverified_context()  # noqa: S323  # pip does not check this server's certificate either
    return ssl.create_default_context(cafile=settings.certificates or None)


def _without_home(place: str) -> str:
    """Return a path with ~ expanded, because the hosts' users have other homes."""
    return str(Path(place).expanduser()) if place.startswith("~") else place


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
