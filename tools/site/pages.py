"""Stage the site's pages in one folder, as they lie in the repository: guides, the code they link to, the reference."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.site import keys_page, links, navigation, recipes_page, tasks_page

ROOT: Final = Path(__file__).resolve().parents[2]
STYLE: Final = Path(__file__).with_name("style.css")
GENERATED: Final = (keys_page, tasks_page, recipes_page)
LANGUAGES: Final = {".cc": "cpp", ".py": "python", ".sh": "sh", ".toml": "toml", ".yaml": "yaml"}


def guides() -> list[str]:
    """Return the pages that are committed, as paths from the root."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "localcloud" / "README.md"]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def index() -> str:
    """Return docs/index.md with the pages that are written from the code."""
    entries = [navigation.Entry(title=each.TITLE, page=each.PAGE) for each in GENERATED]
    return navigation.with_pages((ROOT / navigation.INDEX).read_text(encoding="utf-8"), entries)


def stage(folder: Path) -> None:
    """Write every page, and the pictures and files that pages link to, into an empty folder."""
    for page in guides():
        text = index() if page == navigation.INDEX else (ROOT / page).read_text(encoding="utf-8")
        _write(folder / page, links.for_site(text, page, ROOT))
        for target in _files(text, page):
            if links.is_source(ROOT / target):
                _write(folder / links.source_page(target), source_text(target))
            else:
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / target, folder / target)
    shutil.copyfile(STYLE, folder / STYLE.name)
    for each in GENERATED:
        _write(folder / each.PAGE, each.page())


def source_text(path: str) -> str:
    """Return the page of a file of code, which the search leaves out."""
    file = ROOT / path
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    text = file.read_text(encoding="utf-8").rstrip()
    return f"{head}````{LANGUAGES.get(file.suffix, 'text')}\n{text}\n````\n"


def _files(text: str, page: str) -> Iterator[str]:
    """Yield what a page links to or shows that is a file of the repository and no guide."""
    for target in links.targets(text, page):
        if (ROOT / target).is_file() and not target.endswith(".md"):
            yield target


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
