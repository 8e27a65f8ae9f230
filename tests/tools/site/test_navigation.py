from __future__ import annotations

import pytest

from tools.site.navigation import INDEX, Entry, NavigationError, as_mkdocs, parse, with_pages
from tools.site.pages import ROOT, guides

TEXT = """# Documentation

A word.

## Start

- [The project](../README.md): what it is, in [brackets] too
- [Tasks](tasks.md)

## Reference

- [Settings](settings.md): each
"""


def test_sections_have_the_pages_below_them_with_paths_from_the_root() -> None:
    start, reference = parse(TEXT)
    assert (start.title, [entry.page for entry in start.entries]) == ("Start", ["README.md", "docs/tasks.md"])
    assert reference.entries == (Entry(title="Settings", page="docs/settings.md"),)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("- [Tasks](tasks.md)\n", 1, "under a heading"),
        ("## A\n\n- Tasks, without a link\n", 3, "one line"),
        ("## A\n\n- [Tasks](tasks.md#up): an anchor\n", 3, "one line"),
        ("## A\n\n- [Tasks](tasks.md)\n- [Again](./tasks.md)\n", 4, "docs/tasks.md is listed already"),
    ],
)
def test_a_line_that_is_no_entry_is_named(text: str, line: int, words: str) -> None:
    with pytest.raises(NavigationError, match=words) as caught:
        parse(text)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{INDEX}, line {line}: ")


def test_generated_pages_come_last_in_the_reference() -> None:
    text = with_pages(TEXT, [Entry(title="Keys", page="docs/reference/keys.md")])
    assert text.endswith("- [Settings](settings.md): each\n- [Keys](reference/keys.md)\n")
    assert [entry.title for entry in parse(text)[1].entries] == ["Settings", "Keys"]


def test_an_index_without_the_reference_is_refused() -> None:
    with pytest.raises(NavigationError, match="## Reference"):
        with_pages("# Documentation\n", [])


def test_the_index_is_the_first_page_of_the_site() -> None:
    assert as_mkdocs(parse("## A\n\n- [Tasks](tasks.md)\n")) == [
        {"Documentation": INDEX},
        {"A": [{"Tasks": "docs/tasks.md"}]},
    ]


def test_every_guide_is_listed_once() -> None:
    listed = [entry.page for section in parse((ROOT / INDEX).read_text()) for entry in section.entries]
    assert sorted([*listed, INDEX]) == guides(), "list each guide in docs/index.md"
