"""Read the user's own SSH settings for an address with `ssh -G`, as OpenSSH reads them.

Paramiko's parser rejects lines that OpenSSH accepts, so it never reads the user's files. deepcdk sets the host, the
user, the port and the host keys itself. Only keys, agent and proxy come from the user's settings.
"""

from __future__ import annotations

import dataclasses
import getpass
import hashlib
import os
import pwd
import re
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cluster.errors import ConnectionFailedError
from cluster.terminal.paths import expanded
from cluster.terminal.status_line import warn
from stacks.config import SSH_PORT

DEFAULT_NAMES: Final = ("id_rsa", "id_ecdsa", "id_ed25519")
TIMEOUT_S: Final = 30.0
"""Long, because `Match exec` runs a command of the user's."""
_NOBODY: Final = b"No user exists for uid"
"""OpenSSH's message to a user without an entry in passwd, as in a container."""
_LINE: Final = re.compile(r"[A-Za-z0-9]+( .*)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserSettings:
    """The user's SSH settings for one address."""

    identity_files: tuple[Path, ...] = ()
    identities_only: bool = False
    """Whether agent keys are offered only if they are also identity files."""
    agent: str = ""
    """Path of the agent's socket; "" without an agent."""
    proxy: str = ""
    """Shell command that connects its input and output to the SSH server. It may contain tokens of ssh_config."""
    proxy_source: str = ""
    """The line of the user's settings that defines the proxy."""
    tokens: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Values of the tokens in `proxy`, by the letter after %."""

    def proxy_command(self) -> list[str]:
        """Return the command that starts the proxy, as words. Call this only if `proxy` is not "".

        Like OpenSSH, it uses the user's shell. It ignores Ctrl-C, so that the connection does not end before the task.
        """
        command = f"exec {_expand(self.proxy, self.tokens)}"
        # Ctrl-C in the terminal must not end the connection before the task ends.
        ignoring = 'trap "" INT; exec "$0" -c "$1"'
        return ["/bin/sh", "-c", ignoring, os.environ.get("SHELL") or "/bin/sh", command]


def read(address: str, user: str = "", *, port: int = SSH_PORT, home: Path | None = None) -> UserSettings:
    """Return the user's SSH settings for an address, from `ssh -G`. `home` is by default the user's home directory.

    If the OpenSSH client does not work, return its defaults, after a warning if there is a ~/.ssh/config. Raises
    ConnectionFailedError with OpenSSH's own message if it rejects the settings, or if it does not exit in time.
    """
    home = home or Path.home()
    login = ["-l", user] if user else []
    ssh = ["ssh", *_config_option(home)]
    command = [*ssh, "-G", "-p", str(port), *login, "--", address]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except FileNotFoundError:
        return _without_openssh(home, "is not installed")
    except subprocess.TimeoutExpired:
        raise ConnectionFailedError(
            f"ssh did not read your SSH settings within {TIMEOUT_S:.0f} s",
            where=shlex.join(command),
            remedy="check ~/.ssh/config for a slow `Match exec`, and whether your name server answers",
        ) from None
    if done.returncode != 0 and _NOBODY in done.stderr:
        return _without_openssh(home, "needs an entry for your user in the password database")
    if done.returncode != 0:
        said = [line for line in os.fsdecode(done.stderr).splitlines() if line and not line.startswith("Pseudo-term")]
        raise ConnectionFailedError(
            "\n  ".join(["ssh rejects your SSH settings:", *(ascii(line)[1:-1] for line in said or ["no message"])]),
            where=shlex.join(command),
            remedy="correct your settings where this message says; then the command above prints them",
        )
    return parse(os.fsdecode(done.stdout), address, user, port=port, home=home, environ=os.environ, ssh=ssh)


def openssh_knows_user() -> bool:
    """Return whether the password database has an entry for this user. Without an entry, OpenSSH's client exits."""
    try:
        return bool(pwd.getpwuid(os.getuid()))
    except KeyError:
        return False


def _without_openssh(home: Path, why: str) -> UserSettings:
    """Return OpenSSH's defaults, for a machine whose OpenSSH client does not work.

    If there is a ~/.ssh/config, warn that it is not used. `why` completes "the OpenSSH client ...".
    """
    if os.path.lexists(config := home / ".ssh" / "config"):
        warn(f"{config} is not used, because the OpenSSH client {why}")
    files = tuple(home / ".ssh" / name for name in DEFAULT_NAMES)
    return UserSettings(identity_files=files, agent=os.environ.get("SSH_AUTH_SOCK", ""))


def _config_option(home: Path) -> list[str]:
    """Return ssh's option for the config in this home; [] if it is the default, missing or, after a warning,
    unreadable.

    OpenSSH itself reads the home from passwd, not from HOME.
    """
    try:
        usual = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        usual = None
    config = home / ".ssh" / "config"
    if not os.path.lexists(config):
        return []
    if os.access(config, os.R_OK) and not config.is_dir():
        return [] if home == usual else ["-F", str(config)]
    # OpenSSH also continues without the default config if it cannot read it.
    if not config.is_symlink() or os.access(config, os.F_OK):
        warn(f"{config} cannot be read, and is not used; make it a readable file")
    return []


def parse(
    text: str,
    address: str,
    user: str,
    *,
    port: int,
    home: Path,
    environ: Mapping[str, str],
    ssh: Sequence[str] = ("ssh",),
) -> UserSettings:
    """Parse the output of `ssh -G`: lines with a keyword and a value.

    `address`, `user`, `port` and `home` are the values of tokens such as %h. `ssh` is the command for a jump host.
    Raises ConnectionFailedError for other output, and for settings that cannot be used.
    """
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not _LINE.fullmatch(line):
            raise ConnectionFailedError(
                f"`ssh -G {address}` printed a line that is not a setting: {line[:200]!a}",
                remedy="run the command by hand; the ssh program in PATH must be OpenSSH's",
            )
        keyword, _, value = line.partition(" ")
        values.setdefault(keyword.lower(), []).append(value)
    if "hostname" not in values:
        raise ConnectionFailedError(
            f"`ssh -G {address}` printed no settings", remedy="the ssh program in PATH must be OpenSSH's"
        )
    tokens = _tokens(address, user, port, values, home)
    jump, command = _value(values, "proxyjump"), _value(values, "proxycommand")
    proxy = _jump_command(ssh, jump) if jump else command
    if proxy and _value(values, "proxyusefdpass") == "yes":
        raise ConnectionFailedError(
            "your SSH settings have ProxyUseFdpass, which deepcdk cannot use",
            where=f"ProxyCommand {command}",
            remedy="use a ProxyCommand that forwards the stream, such as `nc -X 5 -x PROXY:1080 %h %p`",
        )
    return UserSettings(
        identity_files=tuple(
            _file(_expand(value, tokens, environ), home)
            for value in values.get("identityfile", ())
            if value.lower() != "none"
        ),
        identities_only=_value(values, "identitiesonly") == "yes",
        agent=_agent(values.get("identityagent", ["SSH_AUTH_SOCK"])[0], tokens, environ, home),
        proxy=proxy,
        proxy_source=f"ProxyJump {jump}" if jump else f"ProxyCommand {command}" if command else "",
        tokens=tokens,
    )


def _value(values: Mapping[str, list[str]], keyword: str) -> str:
    """Return a keyword's first value; "" if it is missing or `none`, which OpenSSH prints for some keywords only."""
    value = values.get(keyword, [""])[0]
    return "" if value.lower() == "none" else value


def _tokens(address: str, user: str, port: int, values: Mapping[str, list[str]], home: Path) -> dict[str, str]:
    """Return the tokens of ssh_config(5) that identity files and proxy commands may contain: the letter after % and its
    value.

    `values` are the settings from `ssh -G`, by keyword.
    """
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container without an entry in passwd
        name = str(os.getuid())
    local, jump = socket.gethostname(), _value(values, "proxyjump")
    alias = _value(values, "hostkeyalias") or address
    digest = hashlib.sha1(f"{local}{address}{port}{user}{jump}".encode(), usedforsecurity=False).hexdigest()
    return {
        "%": "%", "C": digest, "d": str(home), "h": address, "i": str(os.getuid()), "j": jump, "k": alias,
        "L": local.partition(".")[0], "l": local, "n": address, "p": str(port), "r": user, "u": name,
    }  # fmt: skip


def _expand(text: str, tokens: Mapping[str, str], environ: Mapping[str, str] | None = None) -> str:
    """Return a text with its tokens replaced, and ${NAME} if `environ` is given. Unknown tokens and variables stay."""
    if environ is not None:
        text = re.sub(r"\$\{(\w+)\}", lambda found: environ.get(found[1], found[0]), text)
    return re.sub("%(.)", lambda found: tokens.get(found[1], found[0]), text)


def _file(text: str, home: Path) -> Path:
    below = text.removeprefix("~/")
    return home / below if below != text else expanded(text)


def _agent(value: str, tokens: Mapping[str, str], environ: Mapping[str, str], home: Path) -> str:
    """Return the socket's path for a value of IdentityAgent: `none`, SSH_AUTH_SOCK, $NAME or a path.

    Return "" for `none` and for a variable that is not set.
    """
    if value.lower() == "none":
        return ""
    if value == "SSH_AUTH_SOCK" or (value.startswith("$") and "/" not in value):
        return environ.get(value.strip("${}"), "")
    return str(_file(_expand(value, tokens, environ), home))


def _jump_command(ssh: Sequence[str], jump: str) -> str:
    """Return the shell command that OpenSSH itself starts for a ProxyJump. `jump` lists the hosts,
    separated by commas.
    """
    *first, last = jump.split(",")
    through = ["-J", ",".join(first)] if first else []
    target = last if last.startswith("ssh://") else f"ssh://{last}"
    return f"{_token_free(ssh)} -W '[%h]:%p' {_token_free([*through, target])}"


def _token_free(words: Sequence[str]) -> str:
    return shlex.join(words).replace("%", "%%")
