from __future__ import annotations

import re

import pytest

from cluster.cli import loader
from tools.site.tasks_page import page


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Return the sections of the page by task."""
    parts = re.split(r"(?m)^## fab (.+)$", page())[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_task_has_a_section_with_an_example_as_code(sections: dict[str, str]) -> None:
    assert sections.keys() == loader.collection().tasks.keys()
    assert [name for name, text in sections.items() if not re.search(rf"(?m)^    fab {name}\b", text)] == []


def test_every_flag_of_a_task_is_in_its_section_with_what_it_does(sections: dict[str, str]) -> None:
    for name, task in loader.collection().tasks.items():
        for flag in task.flags:
            spelling = rf"--(?:\[no-\])?{flag.parameter.rstrip('_').replace('_', '-')}"
            row = rf"(?m)^\| `[^`]*{spelling}(?:=STRING)?` \| {re.escape(flag.help)} \|$"
            assert re.search(row, sections[name]), (name, flag.parameter)


def test_the_flag_that_a_word_stands_for_is_named(sections: dict[str, str]) -> None:
    assert "A word without a flag is `--node`." in sections["ssh"]
    assert "A word without a flag" not in sections["train"]


def test_written_twice_it_is_the_same() -> None:
    assert page() == page()
