"""The page of what the embedded cloud checks is that of the code, and holds each property."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from localcloud.api.cloudformation.types.allowlist import RESOURCE_TYPES
from tools.embedded_cloud_rules import PAGE, page

API = Path(__file__).parents[2] / "localcloud" / "api"


def test_the_committed_page_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.embedded_cloud_rules"


@pytest.mark.parametrize("name", RESOURCE_TYPES)
def test_every_declared_property_is_in_its_types_section_once(name: str) -> None:
    resource_type = RESOURCE_TYPES[name]
    (section,) = [each for each in page().split("\n### ") if each.startswith(f"{name}\n")]
    for path in (*resource_type.honoured, *resource_type.inert, *resource_type.refused):
        assert section.count(f"| `{path}` |") == 1, path


@pytest.mark.parametrize("name", RESOURCE_TYPES)
def test_a_rule_is_of_a_property_that_is_accepted(name: str) -> None:
    resource_type = RESOURCE_TYPES[name]
    assert resource_type.rules.keys() <= resource_type.paths()


def test_every_module_that_checks_calls_first_says_what_it_refuses() -> None:
    for file in API.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        if "check_first(" in source and file.name != "monkeypatch.py":
            named = [node.target for node in ast.parse(source).body if isinstance(node, ast.AnnAssign)]
            assert "RULES" in [target.id for target in named if isinstance(target, ast.Name)], file
