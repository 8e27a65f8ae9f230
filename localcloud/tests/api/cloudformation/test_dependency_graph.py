"""Resources come after those that they need."""

from __future__ import annotations

import pytest

from api.templates import nodes
from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.intrinsics import dependencies, order


def test_references_and_depends_on_are_needs() -> None:
    needs = dependencies(
        {
            "A": {"Properties": {"x": {"Ref": "B"}, "own": {"Ref": "A"}, "p": {"Ref": "Parameter"}}},
            "B": {"DependsOn": "C"},
            "C": {"DependsOn": ["D"]},
            "D": {},
        }
    )
    assert needs == {"A": {"B"}, "B": {"C"}, "C": {"D"}, "D": set()}
    assert order(needs) == ["D", "C", "B", "A"]


def test_a_circle_is_named() -> None:
    with pytest.raises(ValidationError, match=r"Circular dependency between resources: \[(A, B, A|B, A, B)\]"):
        order({"A": {"B"}, "B": {"A"}})


def test_a_group_comes_last() -> None:
    needs = dependencies(nodes(1))
    assert order(needs)[-1] == "Nodes"
