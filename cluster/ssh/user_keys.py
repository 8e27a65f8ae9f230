"""The user's SSH keys, in files and in the agent, and the key that matches the cluster's EC2 key pair.

sshd disconnects after MaxAuthTries keys, by default six. So the right key is offered first, wherever it is.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import io
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cluster.errors import ConnectionFailedError
from cluster.ssh.user_settings import UserSettings
from cluster.terminal import status_line
from cluster.terminal.paths import expanded, is_file

if TYPE_CHECKING:
    import paramiko

ADD_TO_AGENT: Final = "add the key to an SSH agent: `eval $(ssh-agent); ssh-add FILE`"
MAX_KEY_BYTES: Final = 1 << 16
_PKCS8: Final = re.compile(rb"-----BEGIN (?:ENCRYPTED )?PRIVATE KEY-----")
_BEGIN: Final = "-----BEGIN OPENSSH PRIVATE KEY-----"
_MAGIC: Final = b"openssh-key-v1\0"
_CERTIFICATE: Final = "-cert-v01@openssh.com"
_PASSPHRASE_ATTEMPTS: Final = 3


class LockedKeyError(ConnectionFailedError):
    """Report a private key with an unknown passphrase."""

    def __init__(
        self, path: Path, why: str = "has a passphrase, and there is no terminal on which to ask for it"
    ) -> None:
        super().__init__(f"{path} {why}", remedy=ADD_TO_AGENT.replace("FILE", str(path)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserKey:
    """One of the user's keys."""

    place: str
    """Location for messages: a path, or the agent with the key's comment."""
    algorithm: str
    """Such as ssh-ed25519; "" if the public half is unknown."""
    blob: bytes
    """The public key in SSH's wire format; empty if it is unknown."""
    path: Path | None = None
    """The private key file; None for a key in the agent and for a public key alone."""
    agent_key: paramiko.AgentKey | None = None
    unlocked: list[paramiko.PKey] = dataclasses.field(default_factory=list, compare=False, repr=False)
    """The private key after it was loaded."""

    @property
    def is_usable(self) -> bool:
        """Return whether the private half is available."""
        return self.path is not None or self.agent_key is not None

    @property
    def public_text(self) -> str:
        """Return the public key in OpenSSH's format."""
        return f"{self.algorithm} {base64.b64encode(self.blob).decode()}"

    def load(self) -> paramiko.PKey:
        """Return the private key. May ask for its passphrase on the terminal. Raises ConnectionFailedError."""
        if self.agent_key is not None:
            return self.agent_key
        if self.path is None:
            raise ConnectionFailedError(
                f"{self.place} is a public key, and has no private key next to it",
                remedy="give the file of the private key with --key FILE",
            )
        if not self.unlocked:
            self.unlocked.append(_load(self.path))
        return self.unlocked[0]


def find(settings: UserSettings, home: Path, key: str = "") -> tuple[UserKey, ...]:
    """Return the user's keys: first those in the agent, then those in files, then public keys without a private half.

    Keys without a private half are not usable (`is_usable`). If `key`, the path of a file, is given, only the key in
    this file is returned, after the same key in the agent. `home` has the directory .ssh. Raises ConnectionFailedError
    if `key` is not a valid key.
    """
    in_agent = tuple(_agent_keys(settings.agent))
    if key:
        return _given(expanded(key), in_agent)
    listing = _listing(home / ".ssh")
    files = list(dict.fromkeys((*settings.identity_files, *_private_files(listing))))
    of_files = [found for path in files if (found := read_file(path)) is not None]
    listed = {found.blob for found in of_files if found.path in settings.identity_files}
    if settings.identities_only:  # ssh would not offer the agent's other keys, so they come last
        in_agent = tuple(sorted(in_agent, key=lambda each: each.blob not in listed))
    public = (path for path in listing if path.suffix == ".pub")
    alone = [found for path in public if (found := _public_file(path)) is not None]
    known = {found.blob for found in (*in_agent, *of_files)}
    return (*in_agent, *of_files, *(found for found in alone if found.blob not in known))


def _given(path: Path, in_agent: Sequence[UserKey]) -> tuple[UserKey, ...]:
    """Return the key in a file, preceded by the same key in the agent. The file may contain only the public half.

    For PATH.pub, the private half in PATH is used if it exists. If the file contains no key, the public half in the
    file PATH.pub is used. Raises ConnectionFailedError if neither contains a key.
    """
    public = _public_file(path) or _public_file(Path(f"{path}.pub"))
    found = read_file(path) or (read_file(path.with_suffix("")) if path.suffix == ".pub" else None)
    if found is None and public is None:
        _load(path)  # it reports what is wrong with the file
    if found is None or not found.blob:
        same = [each for each in in_agent if public is not None and each.blob == public.blob]
        return (*same, *(each for each in (found, public) if each is not None))
    return (*(each for each in in_agent if each.blob == found.blob), found)


def _listing(folder: Path) -> list[Path]:
    """Return the sorted entries of ~/.ssh; [] if it is missing. If it is unreadable, a warning is printed too."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        status_line.warn(f"{folder} cannot be read: {error.strerror}; its keys are not used")
        return []


def _private_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the private key files among these files, whatever their names. Unreadable files are skipped."""
    for path in paths:
        if path.suffix == ".pub" or not is_file(path):
            continue
        with contextlib.suppress(OSError), path.open("rb") as file:
            if b"PRIVATE KEY-----" in file.read(64):
                yield path


def read_file(path: Path) -> UserKey | None:
    """Return the key in a private key file without asking for its passphrase.

    None if the file has no private key, is larger than MAX_KEY_BYTES, or cannot be read. Without the passphrase, the
    public half may come from PATH.pub, or be unknown.
    """
    try:
        if not is_file(path) or path.stat().st_size > MAX_KEY_BYTES:
            return None
        text = path.read_bytes().decode("latin-1")
    except OSError:
        return None
    if "PRIVATE KEY-----" not in text:
        return None
    if (half := _half_of_openssh(text)) is None:
        with contextlib.suppress(ConnectionFailedError):
            loaded = _load(path, ask=False)
            return UserKey(
                place=str(path), algorithm=loaded.get_name(), blob=loaded.asbytes(), path=path, unlocked=[loaded]
            )
        public = _public_file(Path(f"{path}.pub"))
        half = (public.algorithm, public.blob) if public else ("", b"")
    return UserKey(place=str(path), algorithm=half[0], blob=half[1], path=path)


def _half_of_openssh(text: str) -> tuple[str, bytes] | None:
    """Return algorithm and public key from a private key file in OpenSSH's format; None for other formats.

    In this format only the private key is encrypted.
    """
    _, begins, rest = text.partition(_BEGIN)
    try:
        data = base64.b64decode(rest.partition("-----END")[0]) if begins else b""
    except binascii.Error:
        return None
    if not data.startswith(_MAGIC):
        return None
    data = data[len(_MAGIC) :]
    for _ in ("cipher", "derivation", "its options"):
        data = data[4 + int.from_bytes(data[:4], "big") :]
    blob = data[8 : 8 + int.from_bytes(data[4:8], "big")]  # after the number of keys
    return _algorithm(blob), blob


def _algorithm(blob: bytes) -> str:
    return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode("ascii", errors="replace")


def parse_public_key(text: str) -> tuple[str, bytes] | None:
    """Parse a public key in OpenSSH's format. Return its algorithm, and its bytes in SSH's wire format.

    Return None for any other text.
    """
    words = text.split()
    if len(words) < 2 or not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        return None
    try:
        return words[0], base64.b64decode(words[1] + "=" * (-len(words[1]) % 4))
    except binascii.Error:
        return None


def _public_file(path: Path) -> UserKey | None:
    """Return the key in a public key file; None if the file is missing, invalid, too large, or a certificate."""
    try:
        if not is_file(path) or path.stat().st_size > MAX_KEY_BYTES:
            return None
        parsed = parse_public_key(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    if parsed is None or parsed[0].endswith(_CERTIFICATE):
        return None
    return UserKey(place=str(path), algorithm=parsed[0], blob=parsed[1])


def _agent_keys(path: str) -> Iterator[UserKey]:
    """Yield the keys of the agent at a socket, except certificates; none for "". If the agent does not answer, print a
    warning.
    """
    if not path:
        return
    import paramiko

    class Agent(paramiko.agent.AgentSSH):
        """An agent at any socket. Paramiko's own class uses only SSH_AUTH_SOCK."""

        def __init__(self) -> None:
            super().__init__()
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]  # its stubs lack it

    try:
        keys = Agent().get_keys()
    except (paramiko.SSHException, OSError, EOFError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        status_line.warn(f"the SSH agent at {path} does not answer: {reason}; only key files are used")
        return
    for key in keys:
        if not key.get_name().endswith(_CERTIFICATE):
            place = f"agent ({key.comment or key.get_name()})"
            yield UserKey(place=place, algorithm=key.get_name(), blob=key.asbytes(), agent_key=key)


def _load(path: Path, *, ask: bool = True) -> paramiko.PKey:
    """Load a private key from its file. With `ask`, up to three passphrases are asked for if there is a terminal.

    Raises LockedKeyError without the right passphrase, ConnectionFailedError for a missing or invalid file.
    """
    import paramiko

    passphrase: Any = None  # bytes: its annotation says str, but that fails
    for attempt in range(_PASSPHRASE_ATTEMPTS + 1):
        try:
            return _from_pkcs8(path, passphrase) or paramiko.PKey.from_path(path, passphrase)
        except FileNotFoundError:
            raise ConnectionFailedError(
                f"the key file {path} does not exist",
                remedy="correct --key FILE, or leave out --key to use the SSH agent and ~/.ssh",
            ) from None
        except (paramiko.PasswordRequiredException, TypeError):
            if not ask or not sys.stdin.isatty():
                raise LockedKeyError(path) from None
        except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError, OSError) as error:
            if passphrase is None:
                raise ConnectionFailedError(
                    f"{path} cannot be used as a private key: {getattr(error, 'strerror', None) or error}",
                    remedy="give the file of a private key with --key FILE",
                ) from None
        if attempt < _PASSPHRASE_ATTEMPTS:
            passphrase = status_line.ask_secret(f"Passphrase of {path}: ").encode()
    raise LockedKeyError(path, f"could not be opened with any of the {_PASSPHRASE_ATTEMPTS} passphrases entered")


def _from_pkcs8(path: Path, passphrase: bytes | None) -> paramiko.PKey | None:
    """Return the private key in a file of the format PKCS #8, which OpenSSH can read and Paramiko cannot.

    None for other formats, and for keys other than RSA and ECDSA. Raises TypeError if the key needs a passphrase,
    ValueError for a wrong passphrase or an invalid file, or OSError.
    """
    text = path.read_bytes()[:MAX_KEY_BYTES]
    if not _PKCS8.search(text):
        return None
    import paramiko
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    key = serialization.load_pem_private_key(text, passphrase)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        return None
    kind = paramiko.RSAKey if isinstance(key, rsa.RSAPrivateKey) else paramiko.ECDSAKey
    own = serialization.PrivateFormat.OpenSSH
    converted = key.private_bytes(serialization.Encoding.PEM, own, serialization.NoEncryption())
    return kind.from_private_key(io.StringIO(converted.decode()))


def matching(keys: Sequence[UserKey], described: Mapping[str, Any]) -> tuple[UserKey, ...]:
    """Return those of `keys` that have the public key in EC2's description of a key pair; () if it shows none."""
    parsed = parse_public_key(str(described.get("PublicKey") or ""))
    return tuple(key for key in keys if parsed is not None and key.blob == parsed[1])
