"""The connection to the master: commands arrive unchanged, and a broken stream is not mistaken for its end."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh.master import MAX_ERRORS, Master, SilenceError, remote_line
from tests.cluster.ssh.ssh_server import SshServer, connect_to, serving

CLOSED = "(the other side closed the connection|Connection reset by peer)"
"""Which of the two appears depends on whether data was left to read."""
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


def test_command_gets_input_and_returns_output_errors_and_status(master: Master) -> None:
    done = master.run(["sh", "-c", "cat; echo bad >&2; exit 3"], stdin=b"\0\xff" * 200_000)
    assert (done.status, done.stdout, done.stderr) == (3, b"\0\xff" * 200_000, "bad\n")


def test_command_runs_in_the_directory_it_is_given(master: Master, tmp_path: Path) -> None:
    directory = tmp_path / "with space"
    directory.mkdir()
    assert master.run(["pwd"], directory=str(directory)).text.strip() == str(directory)
    assert master.run(["pwd"], directory=str(tmp_path / "none")).status != 0
    assert remote_line(["pwd"], "/a b") == "cd '/a b' && exec pwd"


def test_failed_command_is_reported_with_its_status_and_errors(master: Master) -> None:
    command = ["sh", "-c", "echo no space left >&2; exit 28"]
    for fail in (lambda: master.check(command, doing="pushing"), lambda: list(master.lines(command))):
        with pytest.raises(RemoteError, match=r"failed.*\nno space left") as caught:
            fail()
        assert caught.value.status == 28


def test_lines_arrive_as_they_are_written(master: Master, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    lines = master.lines(["sh", "-c", f"echo one; until [ -e {gate} ]; do sleep 0.02; done; printf two"])
    assert next(lines) == "one"
    gate.touch()
    assert list(lines) == ["two"]


def test_silent_stream_is_reported(master: Master) -> None:
    with pytest.raises(SilenceError):
        list(master.lines(["sleep", "5"], silence_s=0.2))


def test_broken_connection_is_reported_and_not_mistaken_for_the_end(user_key: Path) -> None:
    with (
        serving(user_key) as own,
        connect_to(own, user_key) as connected,
        pytest.raises(SilenceError),
    ):
        for _ in connected.lines(["sh", "-c", "echo up; exec sleep 20"]):
            own.cut()


@settings(deadline=None)
@given(TEXT)
def test_real_shell_passes_argument_unchanged(word: str) -> None:
    line = remote_line(["printf", "%s", word], "/")
    assert subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True).stdout == word.encode()


def test_endless_answer_is_rejected(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.ssh.master.MAX_BYTES", 3_000_000)
    assert len(master.run(["head", "-c", "3000000", "/dev/zero"]).stdout) == 3_000_000
    with pytest.raises(AnswerError, match=r"a command is invalid: it has more than 3\.0 MB") as caught:
        master.run(["yes"])
    assert caught.value.where == master.where
    assert len(str(caught.value)) < 1000


def test_endless_line_is_rejected_but_endless_lines_are_not(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.ssh.master.MAX_BYTES", 3_000_000)
    assert [len(line) for line in master.lines(["sh", "-c", "head -c 3000000 /dev/zero; echo; echo x"])] == [
        3_000_000,
        1,
    ]
    with pytest.raises(AnswerError, match="to a command is invalid: a line has more than"):
        list(master.lines(["cat", "/dev/zero"]))
    lines = master.lines(["yes"])
    assert all(next(lines) == "y" for _ in range(2_000_000))
    lines.close()  # type: ignore[attr-defined]  # it is a generator


def test_last_lines_of_endless_errors_are_kept(master: Master) -> None:
    done = master.run(["sh", "-c", "yes | head -c 5000000 >&2; echo last >&2; exit 1"])
    assert len(done.stderr) == MAX_ERRORS
    assert done.stderr.endswith("y\nlast\n")


def test_connection_lost_between_commands_is_reopened_with_a_note(
    user_key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(user_key) as own:
        with connect_to(own, user_key).reopen_with(lambda: connect_to(own, user_key)) as connected:
            assert connected.run(["echo", "first"]).text == "first\n"
            own.cut()
            assert connected.run(["echo", "second"]).text == "second\n"
            assert list(connected.lines(["echo", "third"])) == ["third"]
        captured = capsys.readouterr()
        assert captured.out == ""
        assert re.fullmatch(rf"note: the connection to the master broke \({CLOSED}\); reconnected\n", captured.err)


def test_threads_reopen_broken_connection_once(user_key: Path) -> None:
    opened: list[Master] = []

    def connect(own: SshServer) -> Master:
        opened.append(connect_to(own, user_key))
        return opened[-1]

    with (
        serving(user_key) as own,
        connect(own).reopen_with(lambda: connect(own)) as connected,
        ThreadPoolExecutor(4) as pool,
    ):
        own.cut()
        answers = pool.map(lambda number: connected.run(["echo", str(number)]).text, range(4))
        assert list(answers) == ["0\n", "1\n", "2\n", "3\n"]
    assert len(opened) == 2


def test_connection_in_use_is_not_replaced(user_key: Path) -> None:
    held = threading.Event()

    def connect(own: SshServer) -> Master:
        return connect_to(own, user_key)

    def feed() -> Iterator[bytes]:
        held.wait()
        yield from ()

    with (
        serving(user_key) as own,
        connect(own).reopen_with(lambda: connect(own)) as connected,
    ):
        holding = connected.lines(["sh", "-c", "echo held; exec cat"], feed=feed())
        assert next(holding) == "held"
        own.cut()
        with pytest.raises(SilenceError) as caught:
            connected.run(["true"])
        assert re.fullmatch(f"the connection to the master broke: {CLOSED}", caught.value.what)
        held.set()
        with pytest.raises(SilenceError):
            next(holding)
        assert connected.run(["echo", "again"]).text == "again\n"


def test_connection_that_cannot_be_reopened_is_reported_with_both_reasons(user_key: Path) -> None:
    with serving(user_key) as own, connect_to(own, user_key) as connected:
        connected.reopen_with(lambda: connect_to(own, user_key))
        own.close()
        with pytest.raises(SilenceError, match=r"broke: [^\[]+, and reconnecting failed: .+ refused") as caught:
            connected.run(["true"])
        remedy = "the master may still be booting: repeat in a minute"
        assert (caught.value.where, caught.value.remedy) == (connected.where, remedy)


def test_connection_is_not_reopened_if_server_opens_no_session(user_key: Path) -> None:
    def never() -> Master:
        raise AssertionError("the connection is up")

    with (
        serving(user_key, "MaxSessions 0") as own,
        connect_to(own, user_key).reopen_with(never) as connected,
        pytest.raises(SilenceError, match="ChannelException"),
    ):
        connected.run(["true"])
