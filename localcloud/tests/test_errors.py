"""Errors say what was wrong and what to do."""

from __future__ import annotations

from localcloud.errors import CommandError, LocalCloudError, MissingRequirementsError, NotRunningError


def test_failed_command_shows_its_last_lines() -> None:
    error = CommandError(["ip", "link"], 2, "\n".join(str(number) for number in range(10)))
    assert str(error) == "`ip link` ended with 2: 5\n6\n7\n8\n9"
    assert isinstance(error, LocalCloudError)
    assert isinstance(error, ChildProcessError)


def test_all_that_is_missing_is_listed() -> None:
    assert str(MissingRequirementsError(["a", "b"])).endswith("\n  - a\n  - b")


def test_what_to_start_is_said() -> None:
    assert "start --name lc7" in str(NotRunningError("lc7"))
