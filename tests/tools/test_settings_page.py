from __future__ import annotations

import dataclasses

from payload.settings import Settings, flag_of
from tools.settings_page import PAGE, page


def test_the_committed_page_is_that_of_the_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.settings_page"


def test_every_setting_is_on_the_page_once() -> None:
    text = page()
    for field in dataclasses.fields(Settings):
        assert text.count(f"| `{flag_of(field.name)}` |") == 1
