"""The text of an error for users names the path and the reason, and nothing of Python."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path
from typing import Any

import pytest

from agent.errors import describe, malformed


@dataclasses.dataclass(kw_only=True)
class Point:
    x: int
    y: int


def error_of(**values: Any) -> TypeError:
    with pytest.raises(TypeError) as caught:
        Point(**values)
    return caught.value


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/opt/nodes"),
            "/opt/nodes: No such file or directory",
        ),
        (PermissionError(errno.EACCES, "Permission denied", Path("/root")), "/root: Permission denied"),
        (OSError(errno.ENOENT, "No such file or directory", b"/\xff"), "/\udcff: No such file or directory"),
        (OSError(errno.EBADF, "Bad file descriptor", 7), "Bad file descriptor"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("98 runs are live"), "98 runs are live"),
        (ValueError("must be a number"), "must be a number"),
    ],
)
def test_system_error_is_described_by_its_path_and_reason(error: Exception, text: str) -> None:
    assert describe(error) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("runs"), "'runs' is missing"),
        (error_of(), "missing: 'x' and 'y'"),
        (error_of(x=1, y=2, color="red"), "'color' is unknown"),
        (TypeError("unhashable"), "a value has the wrong type"),
        (ValueError("nested too deeply"), "nested too deeply"),
    ],
)
def test_malformed_json_is_described_in_plain_text(error: Exception, text: str) -> None:
    assert malformed(error) == text
