"""The built site: complete, strict, and usable without a network."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from cluster.cli import task_modules
from cluster.runs.recipe_tables import settings_of
from payload.recipes import RECIPES
from stacks.config import ClusterConfig
from tools.site import __main__ as site
from tools.site import pages
from tools.site.reference import reference_pages, rows

BLOCKS = ("h1", "h2", "h3", "h4", "li", "pre", "table", "tr")
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Elements(HTMLParser):
    """The contents of a page: elements within its text, and addresses that a browser loads automatically."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.classes: set[str] = set()
        self.loaded: list[str] = []
        self._within = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._within |= tag == "article"
        self.found[tag] += self._within and tag in BLOCKS
        self.classes |= set((given.get("class") or "").split())
        if tag in LOADED and given.get(LOADED[tag]) and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given[LOADED[tag]] or "")

    def handle_endtag(self, tag: str) -> None:
        self._within &= tag != "article"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    into = tmp_path_factory.mktemp("site")
    assert site.main(["--into", str(into)]) == 0
    return into


def html(built: Path, page: str) -> Path:
    """Return the built file of a page."""
    return built / page.replace("README.md", "index.md").replace(".md", ".html")


def test_no_page_loads_anything_from_the_network(built: Path) -> None:
    built_pages = sorted(built.rglob("*.html"))
    assert len(built_pages) > len(pages.guides())
    for page in built_pages:
        elements = Elements(page.read_text(encoding="utf-8"))
        assert [each for each in elements.loaded if re.match(r"(https?:)?//", each)] == [], page
        assert "mermaid" not in elements.classes, page  # the theme would load its script from a network
        for address in elements.loaded:
            assert (page.parent / address.split("?")[0]).exists() or page.name == "404.html", (page, address)
    for style in built.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//[^)]*", style.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", pages.guides())
def test_guide_has_same_sections_on_site_and_github(built: Path, page: str) -> None:
    text = pages.index() if page == "docs/index.md" else (pages.ROOT / page).read_text(encoding="utf-8")
    forge = MarkdownIt("commonmark").enable("table").render(text)
    shown = Elements(html(built, page).read_text(encoding="utf-8")).found
    assert {tag: shown[tag] for tag in BLOCKS} == {tag: len(re.findall(rf"<{tag}[ >]", forge)) for tag in BLOCKS}


def test_every_guide_and_reference_page_is_in_the_navigation(built: Path) -> None:
    listed = [
        page for section in pages.navigation(pages.index())[1:] for part in section.values() for page in _pages(part)
    ]
    assert sorted(listed) == sorted([*{*pages.guides()} - {pages.INDEX}, *reference_pages()])
    text = html(built, "docs/tasks.md").read_text(encoding="utf-8")
    assert all(f'/{Path(page).stem}.html"' in text or f'"{Path(page).stem}.html"' in text for page in reference_pages())


def test_reference_pages_are_in_the_section_reference() -> None:
    (section,) = [each["Reference"] for each in pages.navigation(pages.index()) if "Reference" in each]
    assert _pages(section) == ["docs/settings.md", *reference_pages()]


def _pages(part: object) -> list[str]:
    assert isinstance(part, list)
    return [page for entry in part for page in entry.values()]


def test_linked_code_is_a_page_excluded_from_search(built: Path) -> None:
    assert html(built, "stacks/config_keys/limits.py.md").exists()
    assert "stacks/config_keys/limits.py.html" in html(built, "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert '"stacks/config_keys/limits.py.html' not in (built / "search" / "search_index.json").read_text(
        encoding="utf-8"
    )


def test_broken_links_and_anchors_and_unlisted_pages_are_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def stage(folder: Path) -> None:
        folder.mkdir()
        (folder / "one.md").write_text("# One\n\n[a](absent.md) [b](two.md#absent) [c](two.md#two)\n")
        (folder / "two.md").write_text("# Two\n")

    monkeypatch.setattr(pages, "stage", stage)
    monkeypatch.setattr(pages, "navigation", lambda _: [{"One": "one.md"}])
    assert site.build(tmp_path / "site") != 0
    said = capfd.readouterr().err
    assert "'absent.md'" in said
    assert "'two.md#absent'" in said
    assert "  - two.md\n" in said
    assert "#two'" not in said


def test_links_to_code_have_a_page_and_links_to_folders_do_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "code.py").write_text("x = 1\n")
    text = "[`a`](../a/code.py) [folder](../a) [guide](guide.md#one) `[none](../a/code.py)` [name](../a/code.py#x)"
    expected = "[`a`](../a/code.py.md) folder [guide](guide.md#one) `[none](../a/code.py)` [name](../a/code.py.md)"
    assert pages.for_site(text, "docs/page.md", tmp_path) == expected


def test_reference_describes_every_key_flag_and_changed_setting() -> None:
    keys, tasks, recipes = reference_pages().values()
    for field in dataclasses.fields(ClusterConfig):
        (line,) = [line for line in keys.splitlines() if line.startswith(f"| `{field.name}` |")]
        assert f"| `{json.dumps(field.default)}` |" in line
        assert len(line.split("|")[4].strip()) > 10, line
    for name, task in task_modules.collection().tasks.items():
        section = tasks.split(f"\n## fab {name}\n")[1].split("\n## ")[0]
        assert [flag.parameter for flag in task.flags if f"| {flag.described} |" not in section] == []
    for recipe in RECIPES:
        section = recipes.split(f"\n## {recipe.name}\n")[1].split("\n## ")[0]
        assert [each.flag for each in settings_of(recipe) if each.differs and f"| `{each.flag}` |" not in section] == []
    assert rows(("key", "what"), [("a|b", "c")]) == "| key | what |\n| --- | --- |\n| a\\|b | c |\n"
