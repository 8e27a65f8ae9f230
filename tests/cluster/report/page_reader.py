"""Read a page like a browser: its elements with their attributes, and the text of each."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

VOID = frozenset({"meta", "img", "br", "link", "input"})


@dataclasses.dataclass
class Element:
    """One element; `text` includes the text of all elements inside."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


class Page(HTMLParser):
    """The elements of a page, in order. Raises AssertionError if start and end tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(html)
        self.close()
        assert [element.tag for element in self._open] == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        """Return the elements with a tag."""
        return [element for element in self.elements if element.tag == tag]

    def texts(self, tag: str) -> list[str]:
        """Return the text of each element with a tag, with single spaces."""
        return [" ".join(element.text.split()) for element in self.all(tag)]
