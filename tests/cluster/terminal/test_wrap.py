"""Sentences on a terminal: no word is split, and a command in backticks stays on one line."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.terminal import wrap
from cluster.terminal.tables import Table, print_table
from cluster.terminal.wrap import fitted, fold, printable

WORDS = st.lists(st.text(alphabet="abc-/.", min_size=1, max_size=30), min_size=1, max_size=30)


@given(words=WORDS, columns=st.integers(min_value=20, max_value=140), indent=st.integers(min_value=0, max_value=6))
def test_wrapping_keeps_words_and_their_order(words: list[str], columns: int, indent: int) -> None:
    folded = fold(" " * indent + " ".join(words), columns)
    assert folded.split() == words
    assert all(len(line) <= columns or len(line.split()) == 1 for line in folded.splitlines())


def test_continuation_is_indented_and_commands_stay_whole() -> None:
    text = "deepcdk: run a is live\n  do: wait your turn with --queue, watch it with `fab attach --run a`, or stop it"
    assert fold(text, 60).splitlines() == [
        "deepcdk: run a is live",
        "  do: wait your turn with --queue, watch it with",
        "    `fab attach --run a`, or stop it",
    ]


def test_messages_name_the_installed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "run `fab up`, then `fab attach --run a`; Example: fab runs"
    assert fitted(text, io.StringIO()) == text
    monkeypatch.setattr(wrap, "COMMAND", "deepcdk")
    shown = "run `deepcdk up`, then `deepcdk attach --run a`; Example: deepcdk runs"
    assert fitted(text, io.StringIO()) == shown
    lines: list[str] = []
    print_table(Table(title="", columns=("a",), rows=(("`fab up`",),), footer=("`fabric x`",)), lines.append)
    assert lines == ["", "a", "`deepcdk up`", "`fabric x`"]


def test_line_is_not_wrapped_in_a_pipe() -> None:
    assert fitted("word " * 50, io.StringIO()) == "word " * 50


def test_control_characters_are_escaped_and_line_ends_kept() -> None:
    said = "a\x1b[2Jb\x07\r\n\tc\x9bd\u202ee\x7f"
    assert fitted(said, io.StringIO()) == "a\\x1b[2Jb\\x07\n\tc\\x9bd\\u202ee\\x7f"


@given(text=st.text())
def test_printable_text_is_unchanged(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert not any(unicodedata.category(each) == "Cc" and each not in "\n\t" for each in shown)
    assert shown == text or any(unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp") for each in text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_is_wrapped_to_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert fitted("one two three four\x07 five", Terminal()) == "one two three\n  four\\x07 five"


def test_only_lines_that_do_not_fit_are_wrapped_between_words() -> None:
    assert fold("a  b c", 6) == "a  b c"
    assert fold("a\tb ", 4) == "a\tb "
    assert fold("ab two-word", 8) == "ab\n  two-word"
    assert fold("x" * 30 + " y", 10) == "x" * 30 + "\n  y"


def test_backticks_do_not_count_in_width_of_command() -> None:
    assert fold("say `a b c` more", 11) == "say `a b c`\n  more"
    assert fold("say `a b c` more", 10) == "say\n  `a b c`\n  more"
