"""Read the site's navigation from docs/index.md: sections, and in each a list of links to pages."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterable
from typing import Final

INDEX: Final = "docs/index.md"
REFERENCE: Final = "Reference"
"""The section that gets the pages written from the code."""
_SECTION: Final = re.compile(r"## (?P<title>.+)")
_ENTRY: Final = re.compile(r"- \[(?P<title>[^\]]+)\]\((?P<link>[^)#]+)\)(?:: .+)?")


class NavigationError(ValueError):
    """Report a line of docs/index.md that is no entry of the navigation. Carries `line` and `rule`."""

    def __init__(self, line: int, rule: str) -> None:
        self.line, self.rule = line, rule
        super().__init__(f"{INDEX}, line {line}: {rule}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A page in the navigation."""

    title: str
    page: str
    """Path from the root of the repository."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """Pages under one heading."""

    title: str
    entries: tuple[Entry, ...]


def parse(text: str) -> tuple[Section, ...]:
    """Parse docs/index.md. Raises NavigationError naming the line that breaks the rule."""
    sections: list[Section] = []
    pages: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if heading := _SECTION.fullmatch(line):
            sections.append(Section(title=heading["title"], entries=()))
        elif line.startswith("-"):
            found = _ENTRY.fullmatch(line)
            if not found:
                raise NavigationError(number, "an entry must be one line, `- [TITLE](PAGE): what it is`")
            if not sections:
                raise NavigationError(number, "an entry must stand under a heading, `## SECTION`")
            page = posixpath.normpath(posixpath.join(posixpath.dirname(INDEX), found["link"]))
            if page in pages:
                raise NavigationError(number, f"{page} is listed already")
            pages.add(page)
            entries = (*sections[-1].entries, Entry(title=found["title"], page=page))
            sections[-1] = dataclasses.replace(sections[-1], entries=entries)
    return tuple(sections)


def with_pages(text: str, entries: Iterable[Entry]) -> str:
    """Return docs/index.md with further entries at the end of its section REFERENCE."""
    folder = posixpath.dirname(INDEX)
    added = "".join(f"- [{each.title}]({posixpath.relpath(each.page, folder)})\n" for each in entries)
    changed, count = re.subn(rf"(?m)(^## {REFERENCE}\n\n(?:- .*\n)*)", lambda found: found[0] + added, text)
    if count != 1:
        raise NavigationError(0, f"must have one section `## {REFERENCE}`, a list")
    return changed


def as_mkdocs(sections: Iterable[Section]) -> list[dict[str, object]]:
    """Return the navigation as MkDocs' `nav` has it, the index itself first."""
    listed: list[dict[str, object]] = [
        {section.title: [{entry.title: entry.page} for entry in section.entries]} for section in sections
    ]
    return [{"Documentation": INDEX}, *listed]
