"""The SSH connection to the master: commands, their streams, and forwarded ports."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from agent.errors import describe
from cluster.errors import MAX_SHOWN, ConnectionFailedError, RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh.user_keys import UserKey
from cluster.ssh.user_settings import UserSettings
from cluster.terminal.output import print_note
from cluster.terminal.units import amount

if TYPE_CHECKING:
    import fabric
    import paramiko

SESSION_TIMEOUT_S: Final = 60
"""Timeout for opening a session after the login. systemd starts the user's services first, which took more than 10 s on
an emulated machine.
"""
BLOCK: Final = 1 << 16
MAX_BYTES: Final = 256 << 20
"""Maximum size of one line, or of a command's whole output. A list of a million files takes half of it."""
MAX_ERRORS: Final = 1 << 20
"""Maximum size of a command's error output to keep; the end is kept."""
_BROKEN: Final = (OSError, EOFError, AttributeError)
"""Errors that Paramiko raises for a broken connection, besides SSHException. AttributeError means no transport."""


class SilenceError(ConnectionFailedError):
    """Report that a stream was silent for longer than its heartbeat allows, or broke off."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Completed:
    """The status and output of a command on the master."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Return standard output as text. Bytes that are not UTF-8 are replaced."""
        return self.stdout.decode("utf-8", errors="replace")


def remote_line(argv: Sequence[str], directory: str = "") -> str:
    """Return the line for the master's shell that runs a command, in `directory` if it is given. Quoting is done only
    here.
    """
    line = shlex.join(argv)
    return f"cd {shlex.quote(directory)} && exec {line}" if directory else line


class Master:
    """Run commands on the master over one connection. Close it, or use it in a `with`."""

    def __init__(
        self,
        connection: fabric.Connection,
        where: str,
        on_close: Callable[[], object] | None = None,
        *,
        user_key: UserKey | None = None,
    ) -> None:
        """`where` names the master in errors. `on_close` is called after the connection is closed.

        `user_key` is the key that the master accepted.
        """
        self._connection, self.where, self._on_close = connection, where, on_close
        self.user_key, self.settings = user_key, UserSettings()
        self._connect_again: Callable[[], Master] | None = None
        self._connecting = threading.Lock()
        self._relied_on = 0

    def reopen_with(self, connect: Callable[[], Master]) -> Master:
        """Set the function that opens a new connection if a command finds the current one broken. Return this master.

        The connection is not replaced while a stream or a forwarding uses it, for example while nodes are held for a
        task. The caller must restart what ended with the connection.
        """
        self._connect_again = connect
        return self

    @contextlib.contextmanager
    def _relying(self) -> Iterator[None]:
        """Keep the connection from being replaced during the block."""
        with self._connecting:
            self._relied_on += 1
        try:
            yield
        finally:
            with self._connecting:
                self._relied_on -= 1

    def __enter__(self) -> Master:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and the tunnel or proxy that it uses. Commands that still run on it fail."""
        self._connection.close()
        if self._on_close:
            self._on_close()

    @contextlib.contextmanager
    def forward(self, local_port: int, remote_port: int) -> Iterator[None]:
        """Forward `local_port` of this machine's loopback to `remote_port` of the master's, within a `with`."""
        with (
            self._relying(),
            self._connection.forward_local(
                local_port, remote_port=remote_port, remote_host="127.0.0.1", local_host="127.0.0.1"
            ),
        ):
            yield

    def _open(self, argv: Sequence[str], directory: str) -> paramiko.Channel:
        """Start a command in a new channel. A broken connection is replaced first if possible. Raises SilenceError."""
        import paramiko

        broken = (paramiko.SSHException, *_BROKEN)
        used = self._connection
        try:
            try:
                channel = _session(used)
            except broken as error:
                refused = isinstance(error, paramiko.SSHException) and _is_up(used)
                if refused or self._connect_again is None:
                    raise
                used = self._replaced(used, _reason(used, error), self._connect_again)
                channel = _session(used)
            channel.exec_command(remote_line(argv, directory))
        except SilenceError:
            raise
        except broken as error:
            raise self._silence(f"broke: {_reason(used, error)}") from None
        return channel

    def _replaced(self, broken: fabric.Connection, reason: str, connect: Callable[[], Master]) -> fabric.Connection:
        """Replace a broken connection, unless another thread has done so. Print a note, and return the current
        connection.

        Raises SilenceError if something relies on the broken connection, or if reconnecting fails.
        """
        with self._connecting:
            if self._connection is broken:
                if self._relied_on:
                    raise self._silence(f"broke: {reason}")
                try:
                    other = connect()
                except ConnectionFailedError as error:
                    what = f"the connection to the master broke: {reason}, and reconnecting failed: {error.what}"
                    raise SilenceError(what, where=self.where, remedy=error.remedy or "repeat the command") from None
                self.close()
                self._connection, self._on_close = other._connection, other._on_close
                print_note(f"note: the connection to the master broke ({reason}); reconnected")
            return self._connection

    def _silence(self, what: str) -> SilenceError:
        return SilenceError(f"the connection to the master {what}", where=self.where, remedy="repeat the command")

    def run(self, argv: Sequence[str], *, directory: str = "", stdin: bytes = b"") -> Completed:
        """Run a command to its end, without a time limit, and return its status and output. `stdin` is its whole input.

        It runs in `directory`, by default the login user's home. A status other than 0 is not an error. The result has
        the error output only in this case. Raises AnswerError if the output exceeds MAX_BYTES, and SilenceError if the
        connection breaks.
        """
        output = bytearray()
        try:
            with contextlib.closing(self.blocks(argv, directory=directory, silence_s=None, feed=[stdin])) as blocks:
                for block in blocks:
                    output += block
                    if len(output) > MAX_BYTES:
                        raise _too_long("a command", output, self.where)
        except RemoteError as error:
            return Completed(status=error.status, stdout=bytes(output), stderr=error.output)
        return Completed(status=0, stdout=bytes(output), stderr="")

    def check(self, argv: Sequence[str], *, directory: str = "", stdin: bytes = b"", doing: str) -> Completed:
        """Run a command that must succeed, as `run` does. Raises RemoteError with its output if its status is not 0.

        `doing` describes the action in this error. Also raises the errors of `run`.
        """
        done = self.run(argv, directory=directory, stdin=stdin)
        if done.status != 0:
            what, output = f"{doing} failed (status {done.status})", done.stderr or done.text
            raise RemoteError(what, status=done.status, output=output, where=self.where)
        return done

    def shell(self, argv: Sequence[str]) -> int:
        """Connect this process's terminal, or its standard streams, to a command; return the command's status.

        Raises SilenceError if the connection breaks.
        """
        import paramiko
        from invoke.exceptions import ThreadException

        try:
            done = self._connection.run(remote_line(argv), pty=sys.stdin.isatty(), warn=True)
        except (paramiko.SSHException, ThreadException, *_BROKEN) as error:
            met = error.exceptions[0].value if isinstance(error, ThreadException) else error
            raise self._silence(f"broke: {_reason(self._connection, met)}") from None
        if done.exited == -1:
            raise self._silence("broke")
        return int(done.exited)

    def blocks(
        self,
        argv: Sequence[str],
        *,
        directory: str = "",
        silence_s: float | None = 60.0,
        stdin: bytes = b"",
        feed: Iterable[bytes] | None = None,
    ) -> Generator[bytes]:
        """Start a command, and yield blocks of its standard output. `stdin` is sent first.

        Standard input stays open until the stream ends. If `feed` is given, its blocks are sent in the background
        instead of `stdin`, and standard input is closed at their end. Raises SilenceError if nothing arrived for
        `silence_s` seconds (None: no limit) or the connection broke, and at the end RemoteError for a status other than
        0.
        """
        channel, errors = self._open(argv, directory), bytearray()
        channel.settimeout(silence_s)
        reader = threading.Thread(target=_keep_errors, args=(channel, errors), daemon=True)
        with self._relying():
            try:
                reader.start()
                if feed is None:
                    channel.sendall(stdin)
                else:
                    threading.Thread(target=_feed, args=(channel, feed), daemon=True).start()
                while block := channel.recv(BLOCK):
                    yield block
                status = channel.recv_exit_status()
                reader.join(timeout=5.0)
            except (OSError, EOFError) as error:
                raise self._silence(f"broke: {describe(error) or 'timed out'}") from None
            finally:
                _close(channel)
        if status == -1:
            raise self._silence("broke")
        if status != 0:
            raise RemoteError(
                f"a command on the master failed (status {status})",
                status=status,
                output=errors.decode("utf-8", errors="replace"),
                where=self.where,
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
        """Yield the lines of a command's standard output, without line ends. Takes the arguments of `blocks`, and
        raises its errors.

        Also raises AnswerError for a line longer than MAX_BYTES.
        """
        blocks = self.blocks(argv, directory=directory, silence_s=silence_s, stdin=stdin, feed=feed)
        for batch in self.batches(blocks):
            yield from batch

    def batches(self, blocks: Iterable[bytes]) -> Iterator[list[str]]:
        """Yield the lines that each of `blocks` completes, as a list of texts without line ends.

        This is faster than `lines` for output with many lines. A last line without an end is yielded too. Raises
        AnswerError for a line longer than MAX_BYTES, and the errors of `blocks`.
        """
        rest = bytearray()
        for block in blocks:
            whole, newline, after = block.rpartition(b"\n")
            if newline:
                yield (bytes(rest) + whole).decode("utf-8", errors="replace").split("\n")
                rest.clear()
            rest += after
            if len(rest) > MAX_BYTES:
                raise _too_long("a command", rest, self.where, subject="a line")
        if rest:
            yield [rest.decode("utf-8", errors="replace")]


def _session(connection: fabric.Connection) -> paramiko.Channel:
    channel: paramiko.Channel = connection.client.get_transport().open_session(timeout=SESSION_TIMEOUT_S)
    return channel


def _close(channel: paramiko.Channel) -> None:
    with contextlib.suppress(OSError, EOFError):  # closing sends a message over the connection, which may have broken
        channel.close()


def _is_up(connection: fabric.Connection) -> bool:
    transport = connection.client.get_transport()
    return transport is not None and transport.is_active()


def _reason(connection: fabric.Connection, error: Exception) -> str:
    """Return why a connection broke: the error of the connection's thread, which is more specific, or else `error`."""
    transport = connection.client.get_transport()
    met = (transport.get_exception() if transport is not None else None) or error
    if isinstance(met, EOFError):
        return "the other side closed the connection"
    return (isinstance(met, OSError) and met.strerror) or str(met)


def _keep_errors(channel: paramiko.Channel, kept: bytearray) -> None:
    """Read a command's standard error until it ends or the connection breaks.

    `kept` then has the last MAX_ERRORS bytes.
    """
    block = b"..."
    while block:
        try:
            block = channel.recv_stderr(BLOCK)
        except TimeoutError:  # a command may write nothing there
            continue
        except (OSError, EOFError):
            return
        kept += block
        del kept[:-MAX_ERRORS]


def _too_long(what: str, answer: bytearray, where: str, *, subject: str = "it") -> AnswerError:
    beginning = answer[:MAX_SHOWN].decode("utf-8", errors="replace")
    return AnswerError(what, beginning, f"{subject} has more than {amount(MAX_BYTES)}", where=where)


def _feed(channel: paramiko.Channel, blocks: Iterable[bytes]) -> None:
    """Send blocks to a command's standard input, and close it. If the command ends before it has read all blocks, the
    rest is dropped.
    """
    try:
        for block in blocks:
            channel.sendall(block)
        channel.shutdown_write()
    except (OSError, EOFError):  # Paramiko raises EOFError for a broken connection
        return  # the command ended before it read everything; its status says why
