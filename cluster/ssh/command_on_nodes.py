"""Run a command on the nodes and show the output of each: the laptop's part of `fab run`."""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from agent.spec.laptop_requests import BAD_REQUEST, RemoteCommand
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON
from cluster import master_answers as answers
from cluster.errors import DeepcdkError, RemoteError, UsageError
from cluster.master_answers import AnswerError
from cluster.ssh.master import Master, SilenceError
from cluster.ssh.stream_reader import BackgroundReader
from cluster.terminal.status_line import warn

SILENCE_S: Final = 30.0
"""Six heartbeats of the agent."""
LAST_LINES: Final = 5
_COLORS: Final = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""ANSI foreground colors that are readable on dark and light backgrounds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostResult:
    """The result of a command on one node."""

    name: str
    exit_code: int
    """128 and more: killed by a signal. 255 also means that the node was not reached."""
    reached: bool
    seconds: float
    stdout: bytes
    stderr: bytes
    """Each is the whole output, or its last 4 KiB if a listener received it."""
    trouble: str = ""
    """SSH's message if the node was not reached."""

    @property
    def failed(self) -> bool:
        """Return whether the command failed, or the node was not reached."""
        return self.exit_code != 0 or not self.reached

    @property
    def reason(self) -> str:
        """Return why the command failed, in one or more lines: its exit code and last output, or why it did not run.

        The output is that on stderr, or else on stdout.
        """
        if not self.reached:
            return f"not reached: {self.trouble.strip() or 'no message'}"
        last = (self.stderr or self.stdout).decode("utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return f"exit code {self.exit_code}" + "".join(f"\n    {line}" for line in last)

    def to_document(self) -> dict[str, Any]:
        """Return the fields as JSON values. Bytes of the output that are not UTF-8 are replaced."""
        return {
            **dataclasses.asdict(self),
            "stdout": self.stdout.decode("utf-8", errors="replace"),
            "stderr": self.stderr.decode("utf-8", errors="replace"),
        }


class CommandFailedError(DeepcdkError, RuntimeError):
    """Report that a command failed on some nodes. `results` are the results of all nodes.

    On a single node, `exit_status` is that of the command. Otherwise it is 1.
    """

    def __init__(self, results: Sequence[HostResult]) -> None:
        self.results = tuple(results)
        failed = [result for result in results if result.failed]
        # The status of a single command is passed on; for several it is 1.
        self.exit_status = failed[0].exit_code or 1 if len(results) == 1 else 1
        lines = "".join(f"\n  {result.name}: {result.reason}" for result in failed)
        super().__init__(f"the command failed on {len(failed)} of {len(results)} nodes{lines}")


def parse_environment(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse --env NAME=VALUE into pairs of name and value, in the same order. Names may occur twice.

    Raises UsageError if a text has no name or no `=`. The message omits the value, which may be a secret.
    """
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            shown = name if re.fullmatch(r"\w+", name) else None  # other text may be a value
            raise UsageError("--env", shown, "must be NAME=VALUE")
        pairs.append((name, value))
    return tuple(pairs)


class OutputListener(Protocol):
    """Receives the nodes' output as it arrives."""

    def expect(self, hosts: Sequence[str]) -> None:
        """Accept the names of the nodes, before their output arrives."""

    def feed(self, host: str, stream: str, data: bytes) -> None:
        """Process a part of a node's output. `stream` is "stdout" or "stderr"."""

    def end(self, host: str) -> None:
        """Accept the end of a node's output. It is called after the last `feed` for the node."""


class PrefixedOutput:
    """Print each node's output in whole lines, with the node's short name in front, as in `worker1 | text`."""

    def __init__(
        self,
        write: Callable[[str, str], None],
        *,
        colored: bool,
        shown: Callable[[str, str], Sequence[str]] = lambda _, line: [line],
    ) -> None:
        """Print with `write`, which is called with "stdout" or "stderr" and a line without its end.

        With `colored`, each node's name is printed in a color of its own, by ANSI codes. `shown` is called with the
        same arguments for each line of a node, without the node's name. It returns the lines to print.
        """
        self._write, self._colored, self._shown = write, colored, shown
        self._width = 0
        self._prefixes: dict[str, str] = {}
        self._rests: dict[tuple[str, str], bytes] = {}

    def expect(self, hosts: Sequence[str]) -> None:
        """Accept the names of the nodes: choose a color for each, and pad the names to the same width."""
        self._width = max((len(short(host)) for host in hosts), default=0)
        for number, host in enumerate(hosts):
            color = _COLORS[number % len(_COLORS)]
            text = f"{short(host).ljust(self._width)} |"
            self._prefixes[host] = f"\x1b[{color}m{text}\x1b[0m" if self._colored else text

    def feed(self, host: str, stream: str, data: bytes) -> None:
        """Print the lines that are complete. The rest is kept until more data arrives."""
        *lines, rest = (self._rests.get((host, stream), b"") + data).split(b"\n")
        self._rests[host, stream] = rest
        for line in lines:
            self._print(host, stream, line)

    def end(self, host: str) -> None:
        """Print the rest of a node's output if it did not end with a newline."""
        for stream in ("stdout", "stderr"):
            if rest := self._rests.pop((host, stream), b""):
                self._print(host, stream, rest)

    def _print(self, host: str, stream: str, line: bytes) -> None:
        for shown in self._shown(stream, line.decode("utf-8", errors="replace")):
            self._write(stream, f"{self._prefixes.get(host, host)} {shown}".rstrip())


def short(host: str) -> str:
    """Return a node's name without the common prefix: worker3, master."""
    return host.removeprefix(MASTER_NAME.removesuffix("master"))


def run(
    master: Master, directory: str, request: RemoteCommand, listener: OutputListener | None
) -> tuple[HostResult, ...]:
    """Run the command of `request` on its nodes, and wait until all have ended. Return the results by node order.

    `directory` is the pushed tree with the agent, which starts the command from the master. `listener` gets the output
    as it arrives, and the results then contain only its last 4 KiB. A command that fails on a node is a result, not an
    error. Raises DeepcdkError for missing nodes, RemoteError if the agent fails, AnswerError for an invalid answer of
    the master, and SilenceError if the connection breaks. In that case the command is killed on all nodes.
    """
    command = [NODE_PYTHON, "-m", "agent.remote.fanout"]
    said = master.lines(command, directory=directory, silence_s=SILENCE_S, stdin=request.to_line())
    stream = BackgroundReader(said, master.where)

    def lines() -> Iterator[str]:
        """Yield the agent's messages. Raises DeepcdkError for missing nodes, RemoteError for a status above 1.

        Status 1 is not an error here: the messages report which nodes failed.
        """
        try:
            while (line := stream.next(timeout_s=2 * SILENCE_S)) is not None:
                yield line
        except RemoteError as error:
            if error.status == BAD_REQUEST:
                raise DeepcdkError(
                    error.output.strip() or "the nodes cannot be listed",
                    where=master.where,
                    remedy="`fab status` shows the nodes",
                ) from None
            if error.status != 1:
                raise error.reworded(f"running the command on the nodes failed (status {error.status})") from None

    return collect(lines(), listener, master.where)


_QUESTION: Final = "a command on the nodes"
_RULES: Final = {
    "warning": answers.fields(warning=answers.text),
    "hosts": answers.fields(hosts=answers.each(answers.name)),
    "stream": answers.fields(host=answers.text, stream=answers.text, data=answers.text),
    "exit_code": answers.fields(
        host=answers.text,
        exit_code=answers.whole,
        reached=answers.flag,
        seconds=answers.number,
        trouble=answers.maybe(answers.text),
    ),
}
"""The rule for each kind of message from the agent, by a field that only this kind has."""


def _message(value: Any) -> str:
    """Check one message from the agent, by the rule for its kind. Return "" or what is wrong, as `answers.read`
    expects.
    """
    rule = next((rule for key, rule in _RULES.items() if isinstance(value, dict) and key in value), answers.fields())
    return rule(value)


def _data(message: Mapping[str, Any], where: str) -> bytes:
    try:
        return base64.b64decode(message["data"], validate=True)
    except ValueError as error:
        raise AnswerError(_QUESTION, message["data"], f"data must be base64: {error}", where=where) from None


def collect(lines: Iterable[str], listener: OutputListener | None, where: str = "") -> tuple[HostResult, ...]:
    """Collect the agent's messages, one JSON document a line, into a result for each node, in the agent's order of
    nodes.

    `listener` gets the nodes, their output and their ends as they arrive, and the results then contain only the last 4
    KiB of the output. `where` names the master in errors. Warnings are printed. Raises SilenceError if a result is
    missing, AnswerError for an invalid message or an unknown node.
    """
    hosts: list[str] = []
    output: dict[tuple[str, str], bytes] = {}
    results: dict[str, HostResult] = {}
    for line in lines:
        message = answers.read(line, _message, _QUESTION, where=where)
        host = message.get("host", "")
        if "host" in message and host not in hosts:
            raise AnswerError(_QUESTION, host, "the host is not one of the listed nodes", where=where)
        if "warning" in message:
            warn(message["warning"])
        elif "hosts" in message:
            hosts = list(message["hosts"])
            if listener:
                listener.expect(hosts)
        elif "stream" in message:
            stream, data = message["stream"], _data(message, where)
            kept = output.get((host, stream), b"") + data
            output[host, stream] = kept[-4096:] if listener else kept
            if listener:
                listener.feed(host, stream, data)
        elif "exit_code" in message:
            if listener:
                listener.end(host)
            results[host] = HostResult(
                name=host,
                exit_code=message["exit_code"],
                reached=message["reached"],
                seconds=message["seconds"],
                stdout=output.get((host, "stdout"), b""),
                stderr=output.get((host, "stderr"), b""),
                trouble=message.get("trouble") or "",
            )
    if lost := [host for host in hosts if host not in results]:
        raise SilenceError(
            f"the master sent no result of the command on {', '.join(lost)}", where=where, remedy="repeat the command"
        )
    return tuple(results[host] for host in hosts)
