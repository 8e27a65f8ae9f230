from __future__ import annotations

from tools.site.tables import code, rows


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert rows(("key", "what"), [("a|b", "c")]) == "| key | what |\n| --- | --- |\n| a\\|b | c |\n"


def test_nothing_as_code_is_nothing() -> None:
    assert (code("a"), code("")) == ("`a`", "")
