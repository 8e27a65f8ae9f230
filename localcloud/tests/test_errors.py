"""Errors of the embedded cloud, and the text of system errors."""

from __future__ import annotations

import errno

import pytest

from localcloud.errors import CommandError, error_text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/run/x"), "/run/x: No space left on device"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (TimeoutError("timed out"), "timed out"),
        (CommandError(["ip"], 2, "no"), "`ip` failed with exit status 2: no"),
        (ValueError("bad"), "bad"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_text_of_system_error_has_file_and_reason_without_number(error: Exception, text: str) -> None:
    assert error_text(error) == text
