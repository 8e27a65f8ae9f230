"""The one SSH connection: to the master, whose host keys must be those that its console printed."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from cluster.aws.console import read_console
from cluster.aws.inventory import Instance
from cluster.errors import ConnectionFailedError, RemoteError
from cluster.ssh import session_manager
from cluster.ssh.host_keys import HostKey, parse_console
from cluster.ssh.session_manager import Tunnel
from cluster.terminal.paths import expanded
from stacks.config import SSH_PORT
from stacks.config_keys.network import SESSION_MANAGER, SSH_PORT_OPEN

if TYPE_CHECKING:
    from cluster.aws.client import Aws

CONNECT_TIMEOUT_S: Final = 10
KEYS_TIMEOUT_S: Final = 60.0
BLOCK: Final = 1 << 16
_UNLOCK: Final = "add it to an agent, and leave --key out: eval $(ssh-agent); ssh-add FILE"


class SilenceError(ConnectionFailedError):
    """Report that a stream said nothing for longer than its heartbeat allows, or broke off."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completed:
    """Hold what a command on the master left."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Return standard output as text."""
        return self.stdout.decode("utf-8", errors="replace")


def remote_line(argv: Sequence[str], directory: str = "") -> str:
    """Build the one line that the master's shell gets: every word quoted, once, here."""
    line = shlex.join(argv)
    return f"cd {shlex.quote(directory)} && exec {line}" if directory else line


def read_host_keys(
    read_console: Callable[[str], str], instance_id: str, timeout_s: float = KEYS_TIMEOUT_S, pause_s: float = 1.0
) -> tuple[HostKey, ...]:
    """Read an instance's host keys from its console, waiting until they are printed."""
    deadline = time.monotonic() + timeout_s
    while True:
        keys = parse_console(read_console(instance_id))
        if keys:
            return keys
        if time.monotonic() >= deadline:
            raise ConnectionFailedError(
                f"the console of {instance_id} shows no SSH host keys, so nothing proves who answers at its address",
                where="EC2 GetConsoleOutput",
                remedy="wait for the end of its boot and repeat; "
                "a rebooted instance may have lost its console: replace the master",
            )
        time.sleep(pause_s)


class Master:
    """Run commands on the master over one connection. Close it, or use it in a `with`."""

    def __init__(self, connection: Any, where: str, through: Tunnel | None = None) -> None:
        self._connection, self.where, self._through = connection, where, through

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and the tunnel that it goes through."""
        self._connection.close()
        if self._through:
            self._through.close()

    def forward(self, local_port: int, remote_port: int) -> contextlib.AbstractContextManager[None]:
        """Lead a port of this machine's loopback to one of the master's, for the time of a `with`."""
        forwarding: contextlib.AbstractContextManager[None] = self._connection.forward_local(
            local_port, remote_port=remote_port, remote_host="127.0.0.1", local_host="127.0.0.1"
        )
        return forwarding

    def _open(self, argv: Sequence[str], directory: str) -> Any:
        import paramiko

        try:
            channel = self._connection.client.get_transport().open_session(timeout=CONNECT_TIMEOUT_S)
            channel.exec_command(remote_line(argv, directory))
        except (paramiko.SSHException, OSError, EOFError, AttributeError) as error:
            raise SilenceError(
                f"the connection to the master broke: {error}", where=self.where, remedy="repeat the command"
            ) from None
        return channel

    def run(self, argv: Sequence[str], *, directory: str = "", stdin: bytes = b"") -> Completed:
        """Run a command to its end, whatever its status; `stdin` is sent to it."""
        channel = self._open(argv, directory)
        errors: list[bytes] = []
        helpers = [
            threading.Thread(target=_feed, args=(channel, [stdin]), daemon=True),
            threading.Thread(target=lambda: errors.extend(iter(lambda: channel.recv_stderr(BLOCK), b"")), daemon=True),
        ]
        for helper in helpers:
            helper.start()
        output = b"".join(iter(lambda: channel.recv(BLOCK), b""))
        status = channel.recv_exit_status()
        for helper in helpers:
            helper.join(timeout=5.0)
        channel.close()
        if status == -1:
            raise SilenceError("the connection to the master broke", where=self.where, remedy="repeat the command")
        return Completed(status=status, stdout=output, stderr=b"".join(errors).decode("utf-8", errors="replace"))

    def check(self, argv: Sequence[str], *, directory: str = "", stdin: bytes = b"", doing: str) -> Completed:
        """Run a command that must succeed. Raises RemoteError with its output otherwise; `doing` says what failed."""
        done = self.run(argv, directory=directory, stdin=stdin)
        if done.status != 0:
            raise RemoteError(
                f"{doing} failed (status {done.status})",
                status=done.status,
                output=done.stderr or done.text,
                where=self.where,
            )
        return done

    def blocks(
        self,
        argv: Sequence[str],
        *,
        directory: str = "",
        silence_s: float = 60.0,
        stdin: bytes = b"",
        feed: Iterable[bytes] | None = None,
    ) -> Iterator[bytes]:
        """Yield a command's standard output as it comes; `stdin` is sent first, and its input ends with the stream.

        With `feed` its input is that, sent meanwhile, and ends with it.
        Raises SilenceError when nothing came for `silence_s` seconds or the connection broke, RemoteError on a status
        other than 0.
        """
        channel = self._open(argv, directory)
        channel.settimeout(silence_s)
        try:
            if feed is None:
                channel.sendall(stdin)
            else:
                threading.Thread(target=_feed, args=(channel, feed), daemon=True).start()
            while block := channel.recv(BLOCK):
                yield block
            status = channel.recv_exit_status()
            errors = b"".join(iter(lambda: channel.recv_stderr(BLOCK), b"")).decode("utf-8", errors="replace")
        except (TimeoutError, OSError, EOFError) as error:
            raise SilenceError(
                f"the connection to the master fell silent: {error}", where=self.where, remedy="repeat the command"
            ) from None
        finally:
            channel.close()
        if status == -1:
            raise SilenceError("the connection to the master broke", where=self.where, remedy="repeat the command")
        if status != 0:
            raise RemoteError(
                f"a command on the master failed (status {status})", status=status, output=errors, where=self.where
            )

    def lines(
        self,
        argv: Sequence[str],
        *,
        directory: str = "",
        silence_s: float = 60.0,
        stdin: bytes = b"",
        feed: Iterable[bytes] | None = None,
    ) -> Iterator[str]:
        """Yield a command's standard output line by line; input and errors as `blocks`."""
        rest = b""
        for block in self.blocks(argv, directory=directory, silence_s=silence_s, stdin=stdin, feed=feed):
            *complete, rest = (rest + block).split(b"\n")
            yield from (line.decode("utf-8", errors="replace") for line in complete)
        if rest:
            yield rest.decode("utf-8", errors="replace")


def _feed(channel: Any, blocks: Iterable[bytes]) -> None:
    try:
        for block in blocks:
            channel.sendall(block)
        channel.shutdown_write()
    except OSError:
        return  # The command ended without reading all of it; its status tells why.


def connect(aws: Aws, master: Instance, user: str, key: str = "", ssh_access: str = SSH_PORT_OPEN) -> Master:
    """Connect to the master as its console identifies it; `key` is a private key's file, "" for agent and ~/.ssh."""
    if ssh_access == SESSION_MANAGER:
        session_manager.check_programs()
    # Console and TCP at once would be quicker by a round trip, but no byte is sent before the keys are known.
    keys = read_host_keys(lambda instance_id: read_console(aws, instance_id), master.id)
    if ssh_access != SESSION_MANAGER:
        return open_connection(master.public_ip, user, keys, key=key)
    return session_manager.persist(
        lambda through: open_connection(master.id, user, keys, key=key, through=through),
        session_manager.command(master.id, aws.region),
    )


def open_connection(
    host: str,
    user: str,
    keys: Sequence[HostKey],
    *,
    key: str = "",
    port: int = SSH_PORT,
    through: Tunnel | None = None,
) -> Master:
    """Open the connection, or raise ConnectionFailedError that says what to do; `through` is closed with it."""
    import logging

    import fabric
    import paramiko

    # What its thread makes of a connection that breaks or is interrupted is told here, by us.
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    options: dict[str, Any] = {"pkey": load_key(key), "allow_agent": False, "look_for_keys": False} if key else {}
    patience_s = session_manager.BANNER_S if through else CONNECT_TIMEOUT_S
    if through:
        options["sock"] = through.socket
    connection = fabric.Connection(
        host,
        user=user,
        port=port,
        connect_timeout=CONNECT_TIMEOUT_S,
        connect_kwargs={"banner_timeout": patience_s, "auth_timeout": CONNECT_TIMEOUT_S, **options},
    )
    where = f"{user}@{host}" + (f":{port}" if port != SSH_PORT else "")
    # Fabric's own policy trusts any key at first sight.
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    name = host if port == SSH_PORT else f"[{host}]:{port}"
    for host_key in sorted(keys, key=lambda k: k.algorithm != "ssh-ed25519"):
        try:
            parsed = paramiko.PKey.from_type_string(host_key.algorithm, host_key.blob)
        except (paramiko.SSHException, ValueError, paramiko.pkey.UnknownKeyType):
            continue  # An algorithm that paramiko does not speak; another of the keys will do.
        connection.client.get_host_keys().add(name, host_key.algorithm, parsed)
    try:
        connection.open()
    except Exception as error:  # Whatever paramiko raises becomes one of our messages, or passes on.
        connection.close()
        raise _explain_stream(error, where) if through else _explain(error, where) from None
    connection.client.get_transport().set_keepalive(15)
    return Master(connection, where, through)


def load_key(key: str) -> Any:
    """Load a private key from its file. Raises ConnectionFailedError where that cannot be."""
    import paramiko

    try:
        return paramiko.PKey.from_path(expanded(key))
    except FileNotFoundError:
        raise ConnectionFailedError(
            f"no private key at {key}", remedy="give --key FILE, or leave it out to use the agent and ~/.ssh"
        ) from None
    except (paramiko.PasswordRequiredException, TypeError):
        raise ConnectionFailedError(f"{key} has a passphrase", remedy=_UNLOCK) from None
    except (paramiko.SSHException, paramiko.pkey.UnknownKeyType, ValueError, OSError) as error:
        raise ConnectionFailedError(f"{key} is no private key: {error}", remedy="give --key FILE") from None


def _explain_stream(error: Exception, where: str) -> Exception:
    """Explain a failure over Session Manager, where no address of the laptop's matters."""
    explained = _explain(error, where)
    if isinstance(explained, ConnectionFailedError) and "ssh_cidr" in explained.remedy:
        remedy = "the master may still boot: repeat in a minute; else look at its console"
        return ConnectionFailedError(f"no SSH over Session Manager: {error}", where=where, remedy=remedy)
    return explained


def _explain(error: Exception, where: str) -> Exception:
    import paramiko

    def failed(what: str, remedy: str) -> ConnectionFailedError:
        return ConnectionFailedError(what, where=where, remedy=remedy)

    if isinstance(error, paramiko.BadHostKeyException) or "not found in known_hosts" in str(error):
        return failed(
            "the host that answers is not the master: its SSH host key is none of those on the master's console",
            "do not go on from this network; compare the console (`aws ec2 get-console-output`) from another one",
        )
    if isinstance(error, paramiko.PasswordRequiredException):
        return failed("the private key has a passphrase", _UNLOCK)
    if isinstance(error, paramiko.AuthenticationException):
        return failed(
            "the master refuses your SSH key",
            "give the private key of the EC2 key pair that key_name names in cdk.json: --key FILE, or ssh-add it",
        )
    if isinstance(error, (TimeoutError, socket.timeout)):
        return failed(
            f"no answer within {CONNECT_TIMEOUT_S} s",
            "your address must lie in ssh_cidr of cdk.json: set it to your own address as a /32, then `fab up`",
        )
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError | ConnectionRefusedError):
        return failed(
            "the connection is refused: the SSH server is not up", "the master may still boot: repeat in a minute"
        )
    if isinstance(error, OSError | paramiko.SSHException | EOFError):
        return failed(f"no connection: {error}", "check your network and ssh_cidr in cdk.json")
    return error
