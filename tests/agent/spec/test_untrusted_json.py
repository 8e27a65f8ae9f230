"""JSON from other machines: either a value within the limits, or a ValueError."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.spec.untrusted_json import MAX_LEVELS, parse

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18) + 1, 10**18 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=20,
)


@settings(max_examples=50)
@given(value=VALUES)
def test_json_value_is_read_as_written(value: Any) -> None:
    assert parse(json.dumps(value)) == value
    assert parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize("opened", ["[", '{"a":'])
@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 100_000])
def test_deeply_nested_json_is_rejected_at_any_depth(opened: str, levels: int) -> None:
    closed = "]" if opened == "[" else "}"
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(opened * levels + "1" + closed * levels)
    assert parse(opened * (MAX_LEVELS - 1) + "1" + closed * (MAX_LEVELS - 1))


@pytest.mark.parametrize("digits", ["-" + "1" * 19, "1" * 5000])
def test_number_with_too_many_digits_is_rejected(digits: str) -> None:
    with pytest.raises(ValueError, match="18 digits"):
        parse(f"[{digits}]")
    assert parse("-" + "9" * 18) == -(10**18 - 1)


@pytest.mark.parametrize("text", ["", b"\xff\xfe\xff", "[1,]"])
def test_invalid_json_is_rejected(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # each with a different message
        parse(text)
