"""Printed output: text from a node cannot control a terminal, and a pipe gets it unchanged."""

from __future__ import annotations

import io
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.runs.progress_display import LiveDisplay, PlainDisplay
from cluster.runs.run_progress import RunProgress
from cluster.ssh.command_on_nodes import PrefixedOutput
from cluster.tasks import run
from cluster.terminal.output import print_line, print_note, print_output, print_sentence
from cluster.terminal.progress import BarProgress
from cluster.terminal.status_line import StatusLine, warn
from tests.cluster.terminal.test_wrap import Terminal

TITLE: Final = "\x1b]0;owned\x07"
LINK: Final = "\x1b]8;;http://evil.example/\x1b\\click\x1b]8;;\x1b\\"
CLIPBOARD: Final = "\x1b]52;c;cm0gLXJmIC8=\x07"
HOSTILE: Final = (
    TITLE,
    LINK,
    CLIPBOARD,
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "\x1bP$q\x1b\\",
    "a\b\b\b",
    "\u202egpj.exe",
    "\u061cx",
)
OURS: Final = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|[0-9]*[AK]|[0-9]*G)")
"""Colors, and rich's cursor movements."""


def foreign(text: str) -> list[str]:
    """Return the control characters in the output, except those of the project's displays."""
    rest = OURS.sub("", text)
    return [each for each in rest if unicodedata.category(each) in ("Cc", "Cf") and each not in "\n\t\r"]


def follow_log(text: str) -> None:
    display = PlainDisplay(print_output)
    display.show(RunProgress(run_id="one"), {"type": "log", "run_id": "one", "next": 1, "lines": [text]})
    display.show(RunProgress(run_id="one", state="running", reason=text), {"type": "state"})
    display.note(text)


def watch_live(text: str) -> None:
    with LiveDisplay() as display:
        display.note(text)
        display.show(RunProgress(run_id="one", state=text, reason=text), {"type": "state"})


def run_command(text: str) -> None:
    shown = PrefixedOutput(run._write, colored=True, shown=run._shown)
    shown.expect(["deeplearning-worker1"])
    for stream in ("stdout", "stderr"):
        shown.feed("deeplearning-worker1", stream, f"{text}\n{text}".encode(errors="surrogateescape"))
    shown.end("deeplearning-worker1")


def transfer(text: str) -> None:
    with BarProgress() as bar:
        bar.note(text)


def do_step(text: str) -> None:
    line = StatusLine(lambda: sys.stderr, clock=iter(range(1000)).__next__)
    with line.doing(text):
        line.update()
        line.now(text)


PRINTERS: Final = (
    print_line, print_output, print_sentence, print_note, warn, follow_log, watch_live, run_command, transfer, do_step,
)  # fmt: skip


def on(stream: io.StringIO, printed: Callable[[str], None], *texts: str) -> str:
    """Return the printed text if both stdout and stderr are this stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "200")
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        for text in texts:
            printed(text)
    return stream.getvalue()


@pytest.mark.parametrize("printed", PRINTERS, ids=lambda each: each.__name__)
def test_no_control_sequence_of_a_node_reaches_a_terminal(printed: Callable[[str], None]) -> None:
    for text in HOSTILE:
        shown = on(Terminal(), printed, f"before {text} after")
        assert "before" in shown and "after" in shown
        assert foreign(shown) == [], ascii(text)


@given(
    printed=st.sampled_from([print_line, print_output, follow_log, run_command]),
    text=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_no_control_character_of_any_text_reaches_a_terminal(printed: Callable[[str], None], text: str) -> None:
    assert not [each for each in foreign(on(Terminal(), printed, text)) if unicodedata.category(each) == "Cc"]


def test_colors_of_a_log_are_dropped_and_a_progress_bar_becomes_lines() -> None:
    bar = "\x1b[1m1/2\x1b[0m \x1b[32m━━\x1b[0m\r2/2 \x1b[1;38:5:3mdone\x1b[m\r"
    shown = on(Terminal(), print_output, bar, "", "\x1b\x1b[0m]0;made of two\x07")
    assert shown == "1/2 ━━\n2/2 done\n\n\\x1b]0;made of two\\x07\n"


@pytest.mark.parametrize("printed", [print_line, print_output], ids=lambda each: each.__name__)
def test_pipe_gets_lines_unchanged(printed: Callable[[str], None]) -> None:
    text = "".join(HOSTILE) + "\r\x1b[1m"
    assert on(io.StringIO(), printed, text) == f"{text}\n"
