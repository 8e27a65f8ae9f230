"""Paths of this machine: any text is a valid path, is used as it is, and never causes an exception."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given

from cluster.terminal.paths import expanded, is_directory, is_file, resolved
from tests.words import LONG, WORDS


@given(text=WORDS)
def test_any_text_is_a_path_and_only_home_is_expanded(text: str) -> None:
    path = expanded(text)
    assert path == Path(text) or text.startswith("~")
    assert not (is_file(path) and is_directory(path))
    assert resolved(text).is_absolute()


def test_homes_are_expanded_and_unknown_users_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert [str(expanded(text)) for text in ("~", "~/x", "~no-such-user/x", "a~")] == [
        "/home/me", "/home/me/x", "~no-such-user/x", "a~",
    ]  # fmt: skip


def test_too_long_names_and_circular_links_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for text in (LONG, str(tmp_path / "circle"), str(tmp_path / ("x" * 300))):
        assert (is_file(resolved(text)), is_directory(resolved(text))) == (False, False)


def test_link_is_followed_to_its_target(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    assert resolved(os.fspath(tmp_path / "link")) == tmp_path.resolve() / "file"
    assert is_file(tmp_path / "link") and is_directory(tmp_path)
