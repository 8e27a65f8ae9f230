from __future__ import annotations

from pathlib import Path

import pytest

from tools.site.links import anchor, for_site, is_source, targets

TEXT = """\
[`a/code.py`](../a/code.py) [the folder](../a) [a guide](guide.md#one) [out](https://x.example/a.py)
![a picture](one.png) [two
lines](../a/code.py) `[no link](../a/code.py)` [a name](../a/code.py#x)
```
[in a block](../a/code.py)
```
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "code.py").write_text("x = 1\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.md").write_text("# One\n")
    return tmp_path


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Before any spend: fab doctor", "before-any-spend-fab-doctor"),
        ("Hours: max_hours", "hours-max_hours"),
        ("16 x p3.16xlarge, then none", "16-x-p316xlarge-then-none"),
        ("a - b", "a---b"),
    ],
)
def test_anchors_are_those_of_forges(heading: str, expected: str) -> None:
    assert anchor(heading) == expected


def test_links_are_paths_from_the_root_and_code_has_none() -> None:
    assert list(targets(TEXT, "docs/page.md")) == [
        "a/code.py",
        "a",
        "docs/guide.md",
        "docs/one.png",
        "a/code.py",
        "a/code.py",
    ]


def test_on_the_site_links_to_code_lead_to_its_page_and_links_to_folders_nowhere(root: Path) -> None:
    changed = for_site(TEXT, "docs/page.md", root)
    assert changed.startswith(
        "[`a/code.py`](../a/code.py.md) the folder [a guide](guide.md#one) [out](https://x.example/a.py)\n"
    )
    assert "[two\nlines](../a/code.py.md) `[no link](../a/code.py)` [a name](../a/code.py.md)" in changed
    assert "[in a block](../a/code.py)\n" in changed


def test_pictures_data_and_guides_are_not_shown_as_code(root: Path) -> None:
    assert is_source(root / "a" / "code.py")
    assert not any(is_source(root / path) for path in ("a", "docs/guide.md", "docs/one.png", "absent.py"))
