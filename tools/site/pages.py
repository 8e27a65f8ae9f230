"""Collect the site's pages in one folder: guides, the code that they link to, the reference, and the navigation."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.site.reference import reference_pages

ROOT: Final = Path(__file__).resolve().parents[2]
INDEX: Final = "docs/index.md"
STYLE: Final = Path(__file__).with_name("style.css")
ASSETS: Final = (".json", ".png", ".svg")
"""Suffixes of files that are copied unchanged if a page links to them or shows them."""
LANGUAGES: Final = {".cc": "cpp", ".py": "python", ".sh": "sh", ".toml": "toml", ".yaml": "yaml"}
_TOKEN: Final = re.compile(
    r"^```.*?^```"  # a block of code
    r"|(?P<label>\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\])\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"  # a link
    r"|`[^`\n]*`",  # code in a line
    flags=re.DOTALL | re.MULTILINE,
)


def guides() -> list[str]:
    """Return the pages that are Markdown files in the repository, as paths relative to it.

    The reference pages are not among them. They are generated.
    """
    found = [path for folder in (".", "docs", "localcloud/docs") for path in (ROOT / folder).glob("*.md")]
    found.append(ROOT / "localcloud" / "README.md")
    return sorted(str(path.relative_to(ROOT)) for path in found)


def index() -> str:
    """Return the text of docs/index.md with links to the reference pages added at the end of its section Reference."""
    added = "".join(
        f"- [{text.splitlines()[0].removeprefix('# ')}]({posixpath.relpath(page, 'docs')})\n"
        for page, text in reference_pages().items()
    )
    before, title, after = (ROOT / INDEX).read_text(encoding="utf-8").partition("\n## Reference\n")
    section, heading, rest = after.partition("\n## ")
    return f"{before}{title}{section.rstrip()}\n{added}{heading}{rest}"


def navigation(text: str) -> list[dict[str, object]]:
    """Return MkDocs' `nav` from the text of docs/index.md: its sections and their lists of links."""
    sections = re.split(r"(?m)^## (.+)$", text)[1:]
    nav: list[dict[str, object]] = [{"Documentation": INDEX}]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        links = re.findall(r"(?m)^- \[([^]]+)\]\(([^)]+)\)", body)
        nav.append({title: [{name: _target(link, INDEX)} for name, link in links]})
    return nav


def stage(folder: Path) -> None:
    """Write every page, and the pictures and files that pages link to, into an empty folder."""
    for page in guides():
        text = index() if page == INDEX else (ROOT / page).read_text(encoding="utf-8")
        _write(folder / page, for_site(text, page, ROOT))
        for target in _files(text, page):
            if is_source(ROOT / target):
                _write(folder / f"{target}.md", source_text(target))
            else:
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / target, folder / target)
    shutil.copyfile(STYLE, folder / STYLE.name)
    for page, text in reference_pages().items():
        _write(folder / page, text)


def source_text(path: str) -> str:
    """Return a page that shows a file of code. The search leaves it out. `path` is relative to the repository."""
    file = ROOT / path
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    text = file.read_text(encoding="utf-8").rstrip()
    return f"{head}````{LANGUAGES.get(file.suffix, 'text')}\n{text}\n````\n"


def anchor(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading in GitHub's form, so that links work there and here: "Try it!" gives "try-it".

    `separator` replaces blanks. MkDocs passes it.
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def for_site(text: str, page: str, root: Path) -> str:
    """Return the text of a guide for the site.

    Links to code lead to the pages made by `source_text`. Links to folders become plain text. `page`: path of the guide
    below `root`, the repository.
    """

    def changed(found: re.Match[str]) -> str:
        if not found["path"] or re.match(r"[a-z]+:", found["path"]):
            return found[0]
        target = root / _target(found["path"], page)
        if target.is_dir():
            return found["label"][1:-1]
        return f"{found['label']}({found['path']}.md)" if is_source(target) else found[0]

    return _TOKEN.sub(changed, text)


def is_source(path: Path) -> bool:
    """Return whether the site shows a file as a page of code: a file that is neither a guide (.md) nor of ASSETS."""
    return path.is_file() and path.suffix not in (*ASSETS, ".md")


def _target(path: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _files(text: str, page: str) -> Iterator[str]:
    """Yield the files in the repository that a page links to or shows, except for guides."""
    for found in _TOKEN.finditer(text):
        if found["path"] and not re.match(r"[a-z]+:", found["path"]):
            target = _target(found["path"], page)
            if (ROOT / target).is_file() and not target.endswith(".md"):
                yield target


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
