"""Facts about numbers on a command line: the one that was written, or refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cli.numbers import MOST, parse_number, parse_whole
from cluster.errors import UsageError
from tests.words import WORDS


@given(text=WORDS | st.integers().map(str) | st.text("0123456789", max_size=30), lowest=st.integers(0, 3))
def test_a_text_is_the_number_that_it_shows_or_is_refused(text: str, lowest: int) -> None:
    meant = int(text) if re.fullmatch("[0-9]+", text) else -1
    if lowest <= meant <= MOST:
        assert parse_whole("--rank", text, lowest=lowest) == meant
    else:
        with pytest.raises(UsageError, match=r"(?s)^--rank = .*: must be a whole number from "):
            parse_whole("--rank", text, lowest=lowest)


@pytest.mark.parametrize("text", ["9" * 5000, "1_6", " 3", "٣", "²", "1e1", "+1", "0x1"])
def test_what_python_would_read_or_fail_at_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_whole("--nodes", text, lowest=1, highest=16, called="max_workers")
    assert str(caught.value).endswith("must be a whole number from 1 to 16 (max_workers)")
    assert len(str(caught.value)) < 500


def test_a_flag_without_a_bound_of_its_own_takes_nine_digits() -> None:
    assert parse_whole("--seed", "999999999", lowest=0) == 999_999_999
    with pytest.raises(UsageError, match=r"must be a whole number from 0 to 999999999$"):
        parse_whole("--seed", "1000000000", lowest=0)


def test_zeros_before_a_number_change_nothing() -> None:
    assert parse_whole("--rank", "0" * 6000 + "7", lowest=0) == 7
    assert parse_whole("--rank", "000", lowest=0) == 0


def test_the_bounds_are_taken_and_beyond_them_a_number_is_refused() -> None:
    assert [parse_whole("--nodes", text, lowest=1, highest=16) for text in ("1", "16")] == [1, 16]
    for text in ("0", "17"):
        with pytest.raises(UsageError, match=f"^--nodes = '{text}': must be a whole number from 1 to 16$"):
            parse_whole("--nodes", text, lowest=1, highest=16)


def test_a_number_may_have_a_fraction_and_another_word_is_refused() -> None:
    assert parse_number("--hours", "1.5") == 1.5
    with pytest.raises(UsageError, match=r"^--hours = 'long': must be a number$"):
        parse_number("--hours", "long")
