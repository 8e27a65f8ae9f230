"""`fab run` on the laptop: words as typed, output lines prefixed with names, and failures with host and last lines."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from agent.spec.laptop_requests import BAD_REQUEST, RemoteCommand
from cluster.errors import DeepcdkError, RemoteError, UsageError
from cluster.master_answers import AnswerError
from cluster.ssh.command_on_nodes import CommandFailedError, PrefixedOutput, collect, parse_environment, run
from cluster.ssh.master import Master, SilenceError
from cluster.terminal.status_line import warn

ONE, TWO = "deeplearning-worker1", "deeplearning-worker10"
REQUEST = RemoteCommand(command=("true",))


def said(host: str, data: bytes, stream: str = "stdout") -> str:
    return json.dumps({"host": host, "stream": stream, "data": base64.b64encode(data).decode()})


def ended(host: str, exit_code: int = 0, **fields: Any) -> str:
    return json.dumps({"host": host, "exit_code": exit_code, "reached": True, "seconds": 0.5, **fields})


HOSTS = json.dumps({"hosts": [ONE, TWO]})


class StreamingMaster(Master):
    """Yield these lines for any command, then raise the given error."""

    def __init__(self, *lines: str, error: Exception | None = None) -> None:
        self._lines, self._error, self.where = lines, error, "ec2-user@198.18.1.2"
        self.stdin = b""

    def lines(
        self, argv: Any, *, directory: str = "", silence_s: float = 60.0, stdin: bytes = b"", feed: object = None
    ) -> Iterator[str]:
        self.stdin = stdin
        yield from self._lines
        if self._error:
            raise self._error


def test_variable_can_have_any_value_and_bad_one_is_rejected_without_it() -> None:
    assert parse_environment(["A=b=c\n$(id)", "B="]) == (("A", "b=c\n$(id)"), ("B", ""))
    for text in ("=secret", "TOKEN secret", "TOKEN:secret"):
        with pytest.raises(UsageError, match="NAME=VALUE") as caught:
            parse_environment([text])
        assert "secret" not in str(caught.value)


def test_whole_lines_follow_aligned_node_names() -> None:
    lines: list[tuple[str, str]] = []
    shown = PrefixedOutput(lambda stream, line: lines.append((stream, line)), colored=False)
    messages = [
        HOSTS,
        said(ONE, b"al"),
        said(TWO, b"two\n\n"),
        said(ONE, b"l\nrest\xff"),
        said(TWO, b"bad\n", "stderr"),
    ]
    results = collect([*messages, '{"heartbeat": true}', ended(TWO), ended(ONE)], shown)
    assert lines == [
        ("stdout", "worker10 | two"), ("stdout", "worker10 |"), ("stdout", "worker1  | all"),
        ("stderr", "worker10 | bad"), ("stdout", "worker1  | rest\ufffd"),
    ]  # fmt: skip
    assert [result.name for result in results] == [ONE, TWO]


def test_node_excluded_by_master_is_reported_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    warn.cache_clear()
    messages = [json.dumps({"warning": "line 2 is left out"}), HOSTS, ended(ONE), ended(TWO)]
    assert [result.name for result in collect(messages, None)] == [ONE, TWO]
    assert capsys.readouterr() == ("", "warning: line 2 is left out\n")


def test_failures_are_reported_as_host_and_last_lines() -> None:
    errors = b"".join(b"line %d\n" % n for n in range(9))
    down = ended(TWO, 255, reached=False, trouble="ssh: no route\n")
    results = collect([HOSTS, said(ONE, errors, "stderr"), ended(ONE, 3), down], None)
    error = CommandFailedError(results)
    assert error.exit_status == 1
    assert str(error).splitlines() == [
        "the command failed on 2 of 2 nodes", f"  {ONE}: exit code 3", *(f"    line {n}" for n in range(4, 9)),
        f"  {TWO}: not reached: ssh: no route",
    ]  # fmt: skip


def test_missing_result_is_an_error() -> None:
    with pytest.raises(SilenceError, match=f"no result of the command on {TWO}"):
        collect([HOSTS, ended(ONE)], None)


def test_request_is_sent_on_stdin_and_failed_command_is_a_result() -> None:
    master = StreamingMaster(HOSTS, ended(ONE, 1), ended(TWO), error=RemoteError("failed", status=1, output=""))
    assert [result.exit_code for result in run(master, "/x", REQUEST, None)] == [1, 0]
    assert RemoteCommand.from_line(master.stdin) == REQUEST


def test_missing_nodes_are_reported_with_a_fix() -> None:
    few = "9 nodes requested, but 2 ready; add workers with `fab scale`"
    master = StreamingMaster(error=RemoteError("failed", status=BAD_REQUEST, output=few))
    with pytest.raises(DeepcdkError, match=few) as caught:
        run(master, "/x", REQUEST, None)
    assert caught.value.remedy == "`fab status` shows the nodes"


def test_broken_fan_out_is_reported() -> None:
    with pytest.raises(RemoteError, match="Traceback"):
        run(StreamingMaster(error=RemoteError("failed", status=70, output="Traceback")), "/x", REQUEST, None)


@pytest.mark.parametrize(
    "line",
    [
        "Welcome\x1b[2J",
        "[]",
        '{"hosts": "a"}',
        '{"hosts": ["a/../b"]}',
        '{"hosts": ["a\\u001b[2J"]}',
        said("deeplearning-worker7", b"x"),
        ended("deeplearning-worker7"),
        json.dumps({"host": ONE, "exit_code": "0", "reached": True, "seconds": 0.5}),
        json.dumps({"host": ONE, "exit_code": 0}),
        json.dumps({"host": ONE, "stream": "stdout"}),
        json.dumps({"host": ONE, "stream": "stdout", "data": "%"}),
    ],
)
def test_invalid_messages_and_unknown_nodes_are_rejected_with_the_master(line: str) -> None:
    with pytest.raises(AnswerError, match="a command on the nodes is invalid") as caught:
        run(StreamingMaster(HOSTS, line), "/x", REQUEST, None)
    assert (caught.value.where, "\x1b" in str(caught.value)) == ("ec2-user@198.18.1.2", False)
