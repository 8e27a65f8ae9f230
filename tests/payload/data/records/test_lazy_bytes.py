from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.data.records.lazy_bytes import LazyBytes


@given(st.binary(min_size=1, max_size=20_000), st.data())
def test_any_part_is_what_the_whole_has_there(content: bytes, data: st.DataObject) -> None:
    lazy = LazyBytes(lambda start, size: content[start : start + size], len(content))
    for _ in range(4):
        start = data.draw(st.integers(0, len(content)))
        size = data.draw(st.integers(0, len(content) - start))
        assert lazy.part(start, size) == content[start : start + size]
    with pytest.raises(ValueError, match="of"):
        lazy.part(0, len(content) + 1)


def test_a_fetch_that_gives_less_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 bytes at 0, where 10 should be"):
        LazyBytes(lambda start, size: b"abc", 10).part(0, 10)
