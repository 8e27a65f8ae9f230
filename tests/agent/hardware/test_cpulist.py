from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware.cpulist import LARGEST, parse_list, show_list


@given(st.sets(st.integers(0, LARGEST - 1), max_size=50))
def test_what_is_written_is_read_back(numbers: set[int]) -> None:
    assert parse_list(show_list(numbers)) == numbers


def test_neighbours_are_written_as_ranges() -> None:
    assert show_list([3, 0, 1, 2, 8, 11, 10]) == "0-3,8,10-11"
    assert show_list([]) == ""


def test_an_empty_list_is_empty() -> None:
    assert parse_list("\n") == frozenset()


@pytest.mark.parametrize("text", ["0-", "-1", "3-1", "a", "0,,1", "0-99999999", "0 1", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is neither a number nor a range"):
        parse_list(text)


def test_the_largest_number_is_the_last_that_is_taken() -> None:
    assert parse_list("0,65535") == {0, 65535}
    with pytest.raises(ValueError, match="'65536' is neither"):
        parse_list("0,65536")
    assert parse_list(" 4-4,1\n") == {1, 4}
