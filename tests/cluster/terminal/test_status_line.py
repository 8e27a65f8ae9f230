"""The status line: it explains silence after a second, and never disturbs other output."""

from __future__ import annotations

import io

import pytest

from cluster.terminal.status_line import StatusLine, interruptible
from tests.cluster.terminal.test_wrap import Terminal


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_steps_under_a_second_are_not_shown(clock: Clock) -> None:
    stream = io.StringIO()
    line = StatusLine(lambda: stream, clock)
    with line.doing("connecting"):
        clock.now += 0.9
        line.update()
    with line.doing("asking"):
        line.update()
    assert stream.getvalue() == ""


def test_without_a_terminal_each_long_activity_is_one_plain_line(clock: Clock) -> None:
    stream = io.StringIO()
    line = StatusLine(lambda: stream, clock)
    for what in ("connecting", "asking"):
        with line.doing(what):
            for _ in range(30):
                clock.now += 0.2
                line.update()
    assert stream.getvalue() == "connecting\nasking\n"


@pytest.mark.parametrize(("count", "takes_s", "shown"), [(5, 1.5, "step 0\n"), (4, 0.4, "step 2\n")])
def test_short_steps_with_long_total_time_are_shown_together(
    count: int, takes_s: float, shown: str, clock: Clock
) -> None:
    stream = io.StringIO()
    line = StatusLine(lambda: stream, clock)
    for number in range(count):
        with line.doing(f"step {number}"):
            clock.now += takes_s
            line.update()
    assert stream.getvalue() == shown


def test_output_of_task_delays_the_line(clock: Clock) -> None:
    stream = io.StringIO()
    line = StatusLine(lambda: stream, clock)
    with line.doing("waiting"):
        clock.now += 0.9
        with line.aside():
            print("1 of 2", file=stream)
        clock.now += 0.9
        line.update()
    assert stream.getvalue() == "1 of 2\n"


def test_spinner_leaves_no_trace_on_terminal(clock: Clock) -> None:
    stream = Terminal()
    line = StatusLine(lambda: stream, clock)
    with line.doing("connecting"):
        clock.now += 1.1
        line.update()
        line.now("connecting again")
        with line.aside():
            before = stream.getvalue()
            print("said", file=stream)
        clock.now += 0.5
    text = stream.getvalue()
    assert "connecting" in before
    assert before.endswith("\x1b[2K"), "its line is erased before anything is printed"
    assert text == f"{before}said\n"


def test_terminal_shows_the_time_of_a_long_step(clock: Clock) -> None:
    stream = Terminal()
    line = StatusLine(lambda: stream, clock)
    with line.doing("deploying"):
        clock.now += 9.0
        line.update()
        assert "deploying" in stream.getvalue()
        assert "(" not in stream.getvalue()
        clock.now += 56.0
        line.update()
        line.plain("never printed")
    assert "deploying (1:05)" in stream.getvalue()
    assert "never printed" not in stream.getvalue()


def test_long_step_stays_in_one_line(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    line = StatusLine(lambda: stream, clock)
    with line.doing("word " * 20):
        clock.now += 1.1
        line.update()
        assert stream.getvalue().count("\n") == 0


def test_progress_without_a_terminal_is_a_plain_line(clock: Clock) -> None:
    stream = io.StringIO()
    line = StatusLine(lambda: stream, clock)
    with line.doing("deploying", plain=False):
        line.now("deploying: 12 of 40")
        clock.now += 60.0
        line.update()
        line.plain("deploying: 20 of 40")
    assert stream.getvalue() == "deploying: 20 of 40\n"


def test_line_is_hidden_while_display_uses_terminal(clock: Clock) -> None:
    stream = Terminal()
    line = StatusLine(lambda: stream, clock)
    line.pause()
    with line.doing("connecting again"):
        clock.now += 5.0
        line.update()
        assert stream.getvalue() == ""
        line.resume()
        clock.now += 1.1
        line.update()
        assert "connecting again" in stream.getvalue()


def test_spinner_is_removed_after_an_error(clock: Clock) -> None:
    stream = Terminal()
    line = StatusLine(lambda: stream, clock)
    with pytest.raises(KeyboardInterrupt), line.doing("connecting"):
        clock.now += 1.1
        line.update()
        raise KeyboardInterrupt
    assert "\x1b[?25h" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")


def test_dumb_terminal_gets_the_plain_line(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    line = StatusLine(lambda: stream, clock)
    with line.doing("connecting"):
        clock.now += 1.1
        line.update()
    assert stream.getvalue() == "connecting\n"


def test_ctrl_c_reports_current_step_and_stops_the_task() -> None:
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), interruptible("the run goes on", told.append):
        raise KeyboardInterrupt
    with interruptible("never told", told.append):
        pass
    assert told == ["the run goes on"]
