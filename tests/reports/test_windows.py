"""A laptop with Windows: a checkout from Git for Windows used in WSL, and native Windows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

PROJECT: Final = Path(__file__).resolve().parents[2]
NATIVE: Final = """
import sys
from {module} import {function}
sys.platform = {platform!r}
sys.modules["pwd"] = sys.modules["fcntl"] = sys.modules["termios"] = None  # Windows lacks them.
{function}()
"""


@pytest.mark.parametrize("settings", [("core.autocrlf=true",), ("core.autocrlf=false", "core.eol=crlf")])
def test_checkout_of_git_for_windows_has_unix_line_endings(tmp_path: Path, settings: tuple[str, ...]) -> None:
    """Source: pgenv #19, javy PR #352: `set: Illegal option -`, and nodes that stopped answering."""
    clone = tmp_path / "clone"
    given = [word for setting in settings for word in ("-c", setting)]
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", *given, PROJECT, clone], check=True)
    (clone / ".git" / "info" / "attributes").write_bytes((PROJECT / ".gitattributes").read_bytes())  # as not committed
    subprocess.run(["git", "checkout", "--quiet", "HEAD"], cwd=clone, check=True)
    listed = subprocess.run(["git", "ls-files", "--eol"], cwd=clone, capture_output=True, text=True, check=True).stdout
    changed = [line for line in listed.splitlines() if "w/crlf" in line or "w/mixed" in line]
    assert changed == []
    assert len(listed.splitlines()) > 1000


@pytest.mark.parametrize("platform", ["win32", "cygwin", "msys"])
@pytest.mark.parametrize(
    ("module", "function"), [("deepcdk.__main__", "main"), ("deepcdk.__main__", "cdk"), ("deepcdk", "tasks")]
)
def test_native_windows_is_rejected_with_wsl2(module: str, function: str, platform: str) -> None:
    code = NATIVE.format(module=module, function=function, platform=platform)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "deepcdk: native Windows is not supported",
        "  do: install WSL2 (`wsl --install` in PowerShell), then install deepcdk in its Linux and run it there",
    ]
