"""Links of the pages: anchors as forges make them, and links to code, which the site shows as pages of its own."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ASSETS: Final = (".json", ".png", ".svg")
"""Suffixes of files that a page links to, or shows, as they are."""
_TOKEN: Final = re.compile(
    r"^```.*?^```"  # a block of code
    r"|(?P<label>\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\])\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"  # a link
    r"|`[^`\n]*`",  # code in a line
    flags=re.DOTALL | re.MULTILINE,
)


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading as GitHub makes it, so that a link leads to the same place on the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def source_page(path: str) -> str:
    """Return the site's page for a file of code."""
    return f"{path}.md"


def targets(text: str, page: str) -> Iterator[str]:
    """Yield the paths, from the root of the repository, of the files and folders that a page links to."""
    for found in _TOKEN.finditer(text):
        if found["path"] and not re.match(r"[a-z]+:", found["path"]):
            yield _target(found["path"], page)


def for_site(text: str, page: str, root: Path) -> str:
    """Return a page's text with its links to code leading to the code's pages, and those to folders as plain text."""

    def changed(found: re.Match[str]) -> str:
        if not found["path"] or re.match(r"[a-z]+:", found["path"]):
            return found[0]
        target = root / _target(found["path"], page)
        if target.is_dir():
            return found["label"][1:-1]
        return f"{found['label']}({source_page(found['path'])})" if is_source(target) else found[0]

    return _TOKEN.sub(changed, text)


def is_source(path: Path) -> bool:
    """Return whether a file is code, which the site shows as a page."""
    return path.is_file() and path.suffix not in (*ASSETS, ".md")


def _target(path: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
