"""Facts about differences: equal values have none, others are told down to the value."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cluster.deploy.differences import Difference, compare


def test_values_that_come_and_go_are_told_as_none() -> None:
    assert list(map(str, compare({"A": 1}, {"B": True}))) == ["A 1 -> none", "B none -> true"]
    assert list(compare({"A": [1]}, {"A": [1, 2]})) == [Difference(name="A", before="[1]", after="[1,2]")]
    assert str(Difference(name="A.B", before="", after="")) == "B"


VALUES = st.recursive(
    st.booleans() | st.integers(0, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["Ref", "A", "B"]), inner, max_size=2),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_equal_values_have_no_difference_and_others_have_one(old: Any, new: Any) -> None:
    assert bool(list(compare(old, new))) == (old != new)
