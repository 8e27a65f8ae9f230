"""Public reports about a program's output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from agent.files.atomic_write import open_to_append
from agent.launch.output_lines import BAR_S, Lines
from agent.runs import liveness, run_log
from agent.runs.run_directory import RunDirectory
from agent.runs.run_messages import follow
from agent.supervisor.failure import reason
from agent.supervisor.launcher_messages import log_bytes
from cluster.errors import DeepcdkError, RemoteError
from cluster.runs.follow import print_log
from cluster.runs.progress_display import PlainDisplay, describe_end
from cluster.runs.run_progress import RunProgress
from cluster.runs.supervisor_client import Supervisor
from cluster.ssh.master import Master, SilenceError
from tests.factories import make_nodes, make_spec, make_stack, make_state


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def collapsed(*blocks: bytes, every_s: float = 0.0) -> list[bytes]:
    clock, found = Clock(), list[bytes]()
    lines = Lines(b"", clock=clock)
    for block in blocks:
        found += lines.feed(block)
        clock.now += every_s
    return found + lines.end()


TQDM = [b"\r%3d%%|bar" % each for each in range(101)]
KERAS = [b"\x08" * 20 + b"\r" + b"%d/9 loss" % each for each in range(10)]
WGET = [b"%d%% of file\r" % each for each in range(101)]
COLUMN = [b"\x1b[1G%d of 9" % each for each in range(10)]
CLEARED = [b"\r\x1b[2K%d of 9" % each for each in range(10)]


@pytest.mark.parametrize(
    ("states", "first", "last"),
    [
        (TQDM, b"  0%|bar\n", b"100%|bar\n"),
        (KERAS, b"0/9 loss\n", b"9/9 loss\n"),
        (WGET, b"0% of file\n", b"100% of file\n"),
        (CLEARED, b"\x1b[2K0 of 9\n", b"\x1b[2K9 of 9\n"),
        (COLUMN, b"0 of 9\n", b"9 of 9\n"),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"", b"\r\n", b"\r"])
def test_progress_bar_updates_are_not_lines_of_the_log(
    states: list[bytes], first: bytes, last: bytes, end: bytes
) -> None:
    """Source: ray #4082."""
    assert collapsed(*states, end) == [first, last]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_updates_of_nested_progress_bars_are_not_lines(size: int) -> None:
    """Source: ray #4082. tqdm shows nested loops so: each state of the inner bar was a line."""
    inner = b"".join(b"\n\rinner %d%%\x1b[A" % each for each in range(101))
    text = b"".join(b"\repoch %d" % epoch + inner + b"\n\r        \r\x1b[A" for epoch in range(3)) + b"\repoch 3\n"
    text = text.replace(b"\repoch 2", b"a message\n\repoch 2")
    found = collapsed(*(text[at : at + size] for at in range(0, len(text), size)), b"the end\n")
    kept = [b"epoch 0\n", b"inner 0%\n", b"epoch 1\n", b"a message\n", b"epoch 2\n", b"epoch 3\n", b"the end\n"]
    assert found == kept


def test_slow_progress_bar_is_shown_periodically() -> None:
    """Source: ray #4082."""
    assert len(collapsed(*TQDM, b"\n", every_s=1.0)) == pytest.approx(100 / BAR_S, abs=2)
    clock = Clock()
    lines = Lines(b"", clock=clock)
    assert lines.feed(b"\r1%\r2%\r") == [b"1%\n"]
    assert lines.idle() == []
    clock.now = BAR_S
    assert (lines.feed(b"."), lines.idle(), lines.end()) == ([b"2%\n"], [], [b".\n"])  # a \\n might have followed
    assert lines.feed(b"3%\r4%\r5%") == []
    clock.now *= 2
    assert (lines.idle(), lines.idle()) == ([b"4%\n"], [])


def test_lines_between_progress_bar_updates_are_kept() -> None:
    """Source: ray #4082."""
    assert collapsed(b"one\n\n  \n5%\r6%\rtwo\r\nthree") == [b"one\n", b"\n", b"  \n", b"5%\n", b"two\n", b"three\n"]


class FakeMaster(Master):
    """A master that sends a run's log, with a connection that breaks after this many bytes."""

    def __init__(self, directory: RunDirectory, breaks_after: int | None = None) -> None:
        self.directory, self.breaks_after, self.where = directory, breaks_after, "master"
        self.asked: list[str] = []

    def blocks(self, argv: Sequence[str], **_: Any) -> Iterator[bytes]:  # type: ignore[override]
        self.asked = list(argv)
        start = int(argv[argv.index("--log-from") + 1])
        messages = follow(self.directory, None, log_from=start, is_once="--once" in argv)
        data = "".join(f"{json.dumps(each)}\n" for each in messages).encode()[: self.breaks_after]
        yield from (data[at : at + 32_749] for at in range(0, len(data), 32_749))
        if self.breaks_after is not None:
            raise SilenceError("the connection to the master broke")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the login user's home, with the database of runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def long_log(tmp_path: Path) -> tuple[RunDirectory, str]:
    """Write a log of 20,000 lines for a live run."""
    directory = RunDirectory(path=tmp_path / "one")
    directory.path.mkdir()
    directory.write_state(make_state(run_id="one"))
    text = "".join(f"[0]<stdout>:line {number} \u00e9\n" for number in range(20_000)) + "the end"
    directory.log.write_text(text)
    return directory, f"{text}\n"


def show_log(*masters: FakeMaster, run_id: str = "one", following: bool = False) -> None:
    first, *others = masters
    waiting = iter(others)
    supervisor = Supervisor(first, make_stack(), "/tree")
    print_log(supervisor, run_id, connect=lambda: next(waiting), following=following, rank=None)


def test_log_is_printed_unchanged_in_large_chunks(
    long_log: tuple[RunDirectory, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`fab logs` of 53 MB took 99 s, because it printed each line separately."""
    directory, text = long_log
    assert len(list(follow(directory, None, log_from=0, is_once=True))) < 20
    show_log(FakeMaster(directory))
    assert capsys.readouterr() == (text, "")


@pytest.mark.parametrize("following", [False, True])
def test_log_is_complete_after_connection_loss_within_a_line(
    long_log: tuple[RunDirectory, str], following: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log was incomplete, and with --follow the task waited for a lost connection."""
    directory, text = long_log
    if following:
        directory.write_state(make_state(run_id="one", state="succeeded"))
    broken, other = FakeMaster(directory, breaks_after=300_000), FakeMaster(directory)
    other.close = lambda: None  # type: ignore[method-assign]
    show_log(broken, other, run_id="", following=following)
    out, said = capsys.readouterr()
    assert out == text
    assert "connection lost" in said
    assert other.asked[6] == "one" and int(other.asked[other.asked.index("--log-from") + 1]) > 1000


def test_last_lines_of_a_failed_run_are_printed_once() -> None:
    """They were printed as its log, and again as the reason."""
    progress = RunProgress(run_id="one", state="failed", reason="rank 0 exited first", last_lines=("the last",))
    assert ["the last" in describe_end(progress, None, log=log)[0] for log in (False, True)] == [True, False]


def test_logs_with_several_runs_asks_to_choose_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It first printed "a command on the master failed (status 4)"."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise RemoteError("a command failed", status=4, output="2 runs are live: one, two\n", where="")

    monkeypatch.setattr(FakeMaster, "blocks", refuse)
    with pytest.raises(DeepcdkError, match=r"^2 runs are live: one, two\n"):
        show_log(FakeMaster(RunDirectory(path=tmp_path)), run_id="")


def numbered(messages: Iterable[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return the number and the text of each line of the log."""
    log = [each for each in messages if each["type"] == "log"]
    return [pair for each in log for pair in enumerate(each["lines"], each["next"] - len(each["lines"]))]


def test_log_of_run_has_size_limit_and_reports_truncation(tmp_path: Path) -> None:
    """Nothing limited the size of `launcher.log`, on billed storage."""
    directory = RunDirectory(path=tmp_path / "one")
    directory.path.mkdir()
    directory.write_state(make_state(run_id="one"))
    written = 0
    with open_to_append(directory.log, buffering=0) as log:  # kept open, as by the launcher
        for _ in range(3):
            for _ in range(300):
                log.write(b"[0]<stdout>:line %d\n" % written)
                written += 1
            assert run_log.cut(directory.log, 4000, 1000)
            assert not run_log.cut(directory.log, 4000, 1000)
        log.write(b"[0]<stdout>:the end\n")
    files = sorted(directory.path.glob("launcher*"))
    assert [path.name for path in files] == ["launcher-1.log", "launcher.log"]
    assert sum(path.stat().st_size for path in files) < 1500
    note, last = directory.log.read_text().splitlines()
    assert note.startswith("[supervisor] 902 earlier lines were removed") and last == "[0]<stdout>:the end"
    lines = [text for _, text in numbered(follow(directory, None, log_from=0, is_once=True))]
    assert lines[-3:] == ["[0]<stdout>:line 899", note, last]
    assert lines[0].startswith("[0]<stdout>:line ") and 30 < len(lines) < 60
    assert "line 899\n" in run_log.last_text(directory.log, 200)


@pytest.mark.parametrize("replaced", [False, True])
def test_reading_end_of_truncated_log_skips_earlier_lines(tmp_path: Path, replaced: bool) -> None:
    log = tmp_path / "launcher.log"
    log.write_bytes(b"[0]<stdout>:a line\n" * 100)
    assert run_log.cut(log, 1000, 500)
    run_log.earlier(log).unlink()
    if replaced:
        run_log.earlier(log).symlink_to("/etc/hostname")
    assert run_log.last_text(log, 4000) == log.read_text()


def test_lines_of_long_log_are_counted_across_blocks(tmp_path: Path) -> None:
    """A log is read in blocks of 1 MiB."""
    directory = RunDirectory(path=tmp_path)
    lines = [b"[0]<stdout>:line %d\n" % number for number in range(200_000)]
    directory.log.write_bytes(b"".join(lines) + b"a line without an en")
    assert run_log.cut(directory.log, 1 << 20, 3 << 19)
    note, rest = directory.log.read_bytes().splitlines()
    assert note.startswith(b"[supervisor] 200000 earlier lines were removed") and rest == b"a line without an en"
    kept = run_log.earlier(directory.log).read_bytes()
    assert (3 << 19) - 100 < len(kept) < 3 << 19 and b"".join(lines).endswith(b"\n" + kept)


def test_log_is_followed_across_truncation_and_reconnect(tmp_path: Path) -> None:
    """Line numbers stay valid although earlier lines are removed."""
    runs = tmp_path / "one"
    runs.mkdir()
    directory = RunDirectory(path=runs)
    liveness.hold("one")
    directory.write_state(make_state(run_id="one"))
    directory.log.write_text("".join(f"line {number}\n" for number in range(50)))

    def read(log_from: int, *moves: Callable[[], object]) -> list[tuple[int, str]]:
        left = iter(moves)

        def sleep(_: float) -> None:
            if (move := next(left, None)) is not None:
                move()

        return numbered(follow(directory, sleep=sleep, log_from=log_from))

    def append(text: str) -> None:
        with open_to_append(directory.log) as log:
            log.write(text.encode())

    def end() -> None:
        directory.write_state(make_state(run_id="one", state="succeeded"))

    seen = read(0, lambda: run_log.cut(directory.log, 100, 50), lambda: append("later\n"), end)
    assert [number for number, _ in seen] == list(range(52))
    assert seen[50][1].startswith("[supervisor] 50 earlier lines were removed") and seen[51] == (51, "later")
    assert read(51) == [(51, "later")]
    assert read(20) == seen[44:], "what was cut off is kept in part"
    assert read(47) == seen[47:]


@pytest.mark.parametrize("place", ["link", "directory", "none"])
def test_only_logs_are_truncated(tmp_path: Path, place: str) -> None:
    """A rank may replace the log by a link."""
    target = tmp_path / "target"
    target.write_text("x" * 1000)
    run = tmp_path / "run"
    run.mkdir()
    if place == "link":
        (run / "launcher.log").symlink_to(target)
    elif place == "directory":
        (run / "launcher.log").mkdir()
    with pytest.raises(OSError):  # any of them
        run_log.cut(run / "launcher.log", 100, 50)
    assert target.stat().st_size == 1000


def test_exception_message_of_2_mb_is_shortened_except_in_log(tmp_path: Path) -> None:
    """The log has it all; state, notification, `fab show` and `fab attach` have its beginning."""
    message = "x" * 2_000_000
    stderr = f"Traceback (most recent call last):\n  File 'train.py', line 1\nValueError: {message}\n".encode()
    lines = [line.decode() for line in Lines(b"[1]<stderr>:").feed(stderr)]
    log = "".join(lines) + "[launcher] rank 1 exited first: 1\n"
    spec = make_spec(hosts=make_nodes(2))
    assert log_bytes(2) > len(log) > 2_000_000
    why = reason(spec, 1, log)
    assert why.startswith("rank 1 on deeplearning-worker2 exited first, with status 1: ValueError: xxx")
    assert "`fab logs`" in why and len(why) < 500
    (tmp_path / "launcher.log").write_text(log)
    last = run_log.last_lines(tmp_path / "launcher.log", rank=1, size=log_bytes(2))
    assert [line[:30] for line in last] == [
        "[1]<stderr>:Traceback (most re", "[1]<stderr>:  File 'train.py',", "[1]<stderr>:ValueError: xxxxxx",
    ]  # fmt: skip
    assert sum(map(len, last)) < 3000
    shown: list[str] = []
    display = PlainDisplay(lambda *texts: shown.extend(texts))
    for part in (lines[:10], lines[10:], ["[1]<stderr>:after"]):
        display.show(RunProgress(), {"type": "log", "lines": [line.rstrip("\n") for line in part]})
    assert len(shown) == 4 and shown[-1] == "[1]<stderr>:after" and sum(map(len, shown)) < 20_000


@pytest.mark.parametrize(
    "colored",
    [
        b"\x1b[1;35mValueError\x1b[0m: \x1b[35mbad\x1b[0m data",
        b"\x1b]0;title\x07ValueError: \x1b]8;;http://a/\x1b\\bad\x1b]8;;\x1b\\ data",
        b"\x1b[2K\x1b[1000DValueError: bad\x00\x07\x0e\x1b(B\x1b[?25h data\x7f",
        b"ValueError: b\x1b\x1b[0mad\xc2\x9b \x1b[Kdata\x1b",
    ],
    ids=["colors", "title and link", "cursor", "nested"],
)
def test_colors_are_removed_except_in_log(tmp_path: Path, colored: bytes) -> None:
    """Python 3.13 and Rich color tracebacks: the reason was `\\x1b[1;35mValueError\\x1b[0m: ...`, or missing."""
    stderr = b"\x1b[1mTraceback (most recent call last):\x1b[0m\n  File 'train.py', line 1\n" + colored + b"\n"
    log = b"".join(Lines(b"[1]<stderr>:").feed(stderr)) + b"[launcher] rank 1 exited first: 1\n"
    (tmp_path / "launcher.log").write_bytes(log)
    why = reason(make_spec(hosts=make_nodes(2)), 1, log.decode())
    assert why == "rank 1 on deeplearning-worker2 exited first, with status 1: ValueError: bad data"
    last = run_log.last_lines(tmp_path / "launcher.log", rank=1)
    assert last[0] == "[1]<stderr>:Traceback (most recent call last):"
    assert last[2].strip() == "[1]<stderr>:ValueError: bad data"
    assert b"ValueError" in log and b"\x1b" in log
