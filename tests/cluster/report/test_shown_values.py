"""The display of values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.report.shown_values import dollars, percent, plain, plural, rate_text, time_text, value_text


@given(text=st.text())
def test_plain_text_is_one_line_of_valid_xml_characters(text: str) -> None:
    found = plain(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in found)
    assert found == plain(found)


def test_direction_characters_are_replaced_and_long_texts_truncated() -> None:
    assert plain("a\u202eb\x1b[31m") == "a\ufffdb\ufffd[31m"
    assert plain("x" * 5000).endswith("x... (5,000 characters)")
    assert (plain(None), plain(3)) == ("", "3")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), ("", "-"), ([], "-"), (True, "yes"), (False, "no"), (0, "0"), (0.05, "0.05"), (431080, "431080"),
        (["s3", 2], "s3, 2"), ({"t3.medium": 0.0416}, "t3.medium 0.0416"), (1e-7, "1e-07"),
    ],
)  # fmt: skip
def test_json_values_as_text(value: object, text: str) -> None:
    assert value_text(value) == text


def test_figures_are_rounded() -> None:
    assert (percent(0.98886), percent(None), percent(0.6, 0)) == ("98.89%", "unknown", "60%")
    assert (time_text(4.26), time_text(42), time_text(185), time_text(None)) == ("4.3 s", "42 s", "3:05", "unknown")
    assert (dollars(0.0069), dollars(1234.5), dollars(None)) == ("$0.0069", "$1,234.50", "unknown")
    assert (rate_text(1787.4), rate_text(0.034), rate_text(None)) == ("1,787", "0.034", "unknown")
    assert (plural(1, "node"), plural(2, "node")) == ("1 node", "2 nodes")
