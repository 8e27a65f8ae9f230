"""Run a command on the nodes and show what each says: the laptop's half of `fab run`."""

from __future__ import annotations

import base64
import dataclasses
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from agent.spec.nodes import MASTER_NAME, NODE_PYTHON
from agent.spec.remote_command import BAD_REQUEST, RemoteCommand
from cluster import answers
from cluster.answers import AnswerError
from cluster.errors import DeepcdkError, RemoteError, UsageError
from cluster.ssh.connection import Master, SilenceError
from cluster.ssh.stream_reader import BackgroundReader
from cluster.terminal.status_line import warn

SILENCE_S: Final = 30.0
"""Six heartbeats of the far side."""
LAST_LINES: Final = 5
_COLOURS: Final = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)
"""ANSI's foregrounds that read well on dark and on light."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostResult:
    """Hold what a command left on one node."""

    name: str
    exit_code: int
    """The command's; 128 and more: killed by a signal; 255 also where the node was not reached."""
    reached: bool
    seconds: float
    stdout: bytes
    stderr: bytes
    trouble: str = ""
    """SSH's words where the node was not reached."""

    @property
    def failed(self) -> bool:
        return self.exit_code != 0 or not self.reached

    @property
    def reason(self) -> str:
        """Return why it failed, with the last lines."""
        if not self.reached:
            return f"not reached: {self.trouble.strip() or 'no word'}"
        last = (self.stderr or self.stdout).decode("utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return f"exit code {self.exit_code}" + "".join(f"\n    {line}" for line in last)

    def to_document(self) -> dict[str, Any]:
        """Return the result as JSON values; output that is not UTF-8 has its bytes replaced."""
        return {
            **dataclasses.asdict(self),
            "stdout": self.stdout.decode("utf-8", errors="replace"),
            "stderr": self.stderr.decode("utf-8", errors="replace"),
        }


class CommandFailedError(DeepcdkError, RuntimeError):
    """Report the nodes on which a command failed; `results` holds those of all."""

    def __init__(self, results: Sequence[HostResult]) -> None:
        self.results = tuple(results)
        failed = [result for result in results if result.failed]
        # The status of one command is its own; that of many can only say that not all is well.
        self.exit_status = failed[0].exit_code or 1 if len(results) == 1 else 1
        lines = "".join(f"\n  {result.name}: {result.reason}" for result in failed)
        super().__init__(f"the command failed on {len(failed)} of {len(results)} nodes{lines}")


def words_after_dashes(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the words after the first `--`, as the shell gave them; invoke would join them with blanks."""
    words = list(argv)
    return tuple(words[words.index("--") + 1 :]) if "--" in words else ()


def parse_environment(given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Parse --env NAME=VALUE. Raises UsageError that names the rule, and not the value: it may be a secret."""
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError("--env", name, "must be NAME=VALUE")
        pairs.append((name, value))
    return tuple(pairs)


class Listener(Protocol):
    """Take the nodes' output as it comes."""

    def expect(self, hosts: Sequence[str]) -> None:
        """Learn whose output is to come."""

    def feed(self, host: str, stream: str, data: bytes) -> None:
        """Take some of a node's output; `stream` is "stdout" or "stderr"."""

    def end(self, host: str) -> None:
        """Learn that a node's output has ended."""


class Prefixer:
    """Print each node's output in whole lines, each behind the node's name."""

    def __init__(self, write: Callable[[str, str], None], *, coloured: bool) -> None:
        """`write` takes "stdout" or "stderr", and a line without its end."""
        self._write, self._coloured = write, coloured
        self._width = 0
        self._prefixes: dict[str, str] = {}
        self._rests: dict[tuple[str, str], bytes] = {}

    def expect(self, hosts: Sequence[str]) -> None:
        """Learn whose output is to come, to align it."""
        self._width = max((len(short(host)) for host in hosts), default=0)
        for number, host in enumerate(hosts):
            colour = _COLOURS[number % len(_COLOURS)]
            text = f"{short(host).ljust(self._width)} |"
            self._prefixes[host] = f"\x1b[{colour}m{text}\x1b[0m" if self._coloured else text

    def feed(self, host: str, stream: str, data: bytes) -> None:
        """Print the lines that are whole now."""
        *lines, rest = (self._rests.get((host, stream), b"") + data).split(b"\n")
        self._rests[host, stream] = rest
        for line in lines:
            self._print(host, stream, line)

    def end(self, host: str) -> None:
        """Print what had no end of line."""
        for stream in ("stdout", "stderr"):
            if rest := self._rests.pop((host, stream), b""):
                self._print(host, stream, rest)

    def _print(self, host: str, stream: str, line: bytes) -> None:
        self._write(stream, f"{self._prefixes.get(host, host)} {line.decode('utf-8', errors='replace')}".rstrip())


def short(host: str) -> str:
    """Return a node's name without what all names share: worker3, master."""
    return host.removeprefix(MASTER_NAME.removesuffix("master"))


def run(master: Master, directory: str, request: RemoteCommand, shown: Listener | None) -> tuple[HostResult, ...]:
    """Run a request through the master's `agent.remote.fanout` in a pushed tree; return every node's result, by node.

    With `shown` the output appears as it comes and only its end is kept. Raises DeepcdkError for nodes that are not
    there, SilenceError when the connection breaks: the command is then ended on all nodes.
    """
    stream = BackgroundReader(
        master.lines(
            [NODE_PYTHON, "-m", "agent.remote.fanout"],
            directory=directory,
            silence_s=SILENCE_S,
            stdin=request.to_line(),
        )
    )

    def lines() -> Iterator[str]:
        try:
            while (line := stream.next(timeout_s=2 * SILENCE_S)) is not None:
                yield line
        except queue.Empty:
            raise SilenceError("the connection to the master fell silent", where=master.where) from None
        except RemoteError as error:
            if error.status == BAD_REQUEST:
                raise DeepcdkError(
                    error.output.strip() or "the nodes cannot be listed",
                    where=master.where,
                    remedy="`fab status` shows the nodes, `fab scale --nodes N` adds some",
                ) from None
            if error.status != 1:
                raise

    return collect(lines(), shown, master.where)


_QUESTION: Final = "a command on the nodes"
_WARNING: Final = answers.fields(warning=answers.text)
_HOSTS: Final = answers.fields(hosts=answers.each(answers.name))
_OUTPUT: Final = answers.fields(host=answers.text, stream=answers.text, data=answers.text)
_END: Final = answers.fields(
    host=answers.text,
    exit_code=answers.whole,
    reached=answers.flag,
    seconds=answers.number,
    trouble=answers.maybe(answers.text),
)


def _parse(line: str, where: str) -> Mapping[str, Any]:
    """Parse one message of the far side. Raises AnswerError for one that is none, or that tells of another node."""
    try:
        message = answers.parse(line)
    except ValueError as error:
        raise AnswerError(_QUESTION, line, f"it is no JSON: {error}", where=where) from None
    shape = next((shape for key, shape in _SHAPES.items() if isinstance(message, dict) and key in message), None)
    found: Mapping[str, Any] = answers.check(message, shape or answers.fields(), _QUESTION, where=where)
    return found


_SHAPES: Final = {"warning": _WARNING, "hosts": _HOSTS, "stream": _OUTPUT, "exit_code": _END}


def _decoded(message: Mapping[str, Any], where: str) -> bytes:
    try:
        return base64.b64decode(message["data"], validate=True)
    except ValueError as error:
        raise AnswerError(_QUESTION, message["data"], f"data must be base64: {error}", where=where) from None


def collect(lines: Iterable[str], shown: Listener | None, where: str = "") -> tuple[HostResult, ...]:
    """Fold the far side's messages into each node's result; `where` names the master.

    Raises SilenceError where one of them never came, AnswerError for what is no message or tells of an unknown node.
    """
    submission: list[str] = []
    output: dict[tuple[str, str], bytes] = {}
    results: dict[str, HostResult] = {}
    for line in lines:
        message = _parse(line, where)
        if "host" in message and message["host"] not in submission:
            raise AnswerError(_QUESTION, message["host"], "it is none of the nodes that were named", where=where)
        if "warning" in message:
            warn(message["warning"])
        elif "hosts" in message:
            submission = list(message["hosts"])
            if shown:
                shown.expect(submission)
        elif "stream" in message:
            host, stream, data = message["host"], message["stream"], _decoded(message, where)
            kept = output.get((host, stream), b"") + data
            output[host, stream] = kept[-4096:] if shown else kept
            if shown:
                shown.feed(host, stream, data)
        elif "exit_code" in message:
            host = message["host"]
            if shown:
                shown.end(host)
            results[host] = HostResult(
                name=host,
                exit_code=message["exit_code"],
                reached=message["reached"],
                seconds=message["seconds"],
                stdout=output.get((host, "stdout"), b""),
                stderr=output.get((host, "stderr"), b""),
                trouble=message.get("trouble") or "",
            )
    if lost := [host for host in submission if host not in results]:
        raise SilenceError(f"no result came from {', '.join(lost)}", remedy="repeat the command")
    return tuple(results[host] for host in submission)
