from __future__ import annotations

import dataclasses
import json

import pytest

from stacks.config import ClusterConfig
from tools.site.keys_page import documented, groups, page


def test_every_key_is_on_the_page_once_with_its_default() -> None:
    text = page()
    for field in dataclasses.fields(ClusterConfig):
        lines = [line for line in text.splitlines() if line.startswith(f"| `{field.name}` |")]
        assert len(lines) == 1, field.name
        assert f"| `{json.dumps(field.default)}` |" in lines[0]


def test_every_key_says_what_it_is() -> None:
    said = {name: text for group in groups() for name, text in documented(group).items()}
    assert {field.name for field in dataclasses.fields(ClusterConfig)} <= said.keys()
    assert all(len(text) > 10 and "\n" not in text for text in said.values())


def test_sections_are_named_by_their_subject() -> None:
    titles = [line for line in page().splitlines() if line.startswith("## ")]
    assert titles[0] == "## The cluster itself"
    assert "## The cluster's bounds" in titles
    assert all(len(title) < 80 and "Keys of" not in title for title in titles)


@pytest.mark.parametrize("key", ["name", "workers", "budget_usd", "fsx_capacity_gib", "ssh_cidr"])
def test_keys_of_every_topic_are_there(key: str) -> None:
    assert f"| `{key}` |" in page()
