from __future__ import annotations

from pathlib import Path

from tools.site import navigation
from tools.site.pages import GENERATED, guides, index, source_text, stage


def test_guides_pictures_and_the_code_that_they_link_to_are_staged_under_their_own_paths(tmp_path: Path) -> None:
    stage(tmp_path)
    staged = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {*guides(), *(each.PAGE for each in GENERATED)} <= staged
    assert {"docs/policies/user.json", "cluster/tasks/train.py.md", "style.css"} <= staged
    code = staged - {*guides(), *(each.PAGE for each in GENERATED)}
    assert all(path.endswith((".py.md", ".cc.md", ".svg", ".png", ".json", ".css")) for path in code)
    assert "(cluster/tasks/train.py.md)" in (tmp_path / "ARCHITECTURE.md").read_text()


def test_the_index_lists_the_pages_written_from_the_code() -> None:
    listed = {entry.page for section in navigation.parse(index()) for entry in section.entries}
    assert {each.PAGE for each in GENERATED} <= listed


def test_a_page_of_code_holds_the_file_and_is_no_result_of_a_search() -> None:
    text = source_text("tools/site/tables.py")
    assert "exclude: true" in text.split("---")[1]
    assert f"````python\n{Path(__file__).parents[3].joinpath('tools/site/tables.py').read_text()}````\n" in text
