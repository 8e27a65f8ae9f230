"""Only a yes on a terminal, or --yes, is consent."""

from __future__ import annotations

from unittest import mock

import pytest

from cluster.errors import DeepcdkError
from cluster.terminal.confirmation import confirm


def test_missing_terminal_is_no_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    confirm("grow?", yes=True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(DeepcdkError) as caught:
        confirm("grow?", yes=False)
    assert "--yes" in caught.value.remedy


@pytest.mark.parametrize(("typed", "consents"), [("y", True), ("YES", True), ("", False), ("n", False)])
def test_only_yes_is_consent(monkeypatch: pytest.MonkeyPatch, typed: str, consents: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda: typed)
    if consents:
        confirm("grow?", yes=False)
    else:
        with pytest.raises(DeepcdkError, match="Aborted"):
            confirm("grow?", yes=False)


def test_end_of_the_input_does_not_count_as_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", mock.Mock(side_effect=EOFError))
    with pytest.raises(DeepcdkError, match="Aborted"):
        confirm("grow?", yes=False)
