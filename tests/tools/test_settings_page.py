from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import pytest

from payload.settings import Settings, flag_of
from tools.settings_page import PAGE, page


def test_committed_page_matches_declarations() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.settings_page"


def test_every_setting_is_on_the_page_once() -> None:
    text = page()
    for field in dataclasses.fields(Settings):
        assert text.count(f"| `{flag_of(field.name)}` |") == 1


def test_page_is_written_only_when_run_as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[Path, str, str]] = []
    monkeypatch.setattr(Path, "write_text", lambda path, text, encoding: written.append((path, text, encoding)))
    program = str(PAGE.parents[1] / "tools" / "settings_page.py")
    runpy.run_path(program, run_name="imported")
    assert written == []
    runpy.run_path(program, run_name="__main__")
    assert written == [(PAGE, page(), "utf-8")]
