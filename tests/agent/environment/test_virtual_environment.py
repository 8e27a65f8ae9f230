"""Facts about how packages get into a virtual environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.environment.virtual_environment import RuntimeSetupError, VirtualEnvironment, install_command

LOCK = Path("/p/lock.txt")


def command(uv: str | None, find_links: Path | None = None) -> list[str]:
    return install_command(python=Path("/r/bin/python"), requirements=LOCK, uv=uv, find_links=find_links)


def test_everything_is_installed_by_hash_and_compiled() -> None:
    by_uv, by_pip = command("/bin/uv"), command(None)
    assert by_uv[:5] == ["/bin/uv", "pip", "install", "--python", "/r/bin/python"]
    assert {"--require-hashes", "--compile-bytecode"} < set(by_uv)
    assert by_pip[:4] == ["/r/bin/python", "-m", "pip", "install"]
    assert "--require-hashes" in by_pip


def test_from_a_wheelhouse_nothing_is_fetched() -> None:
    assert command(None, Path("/efs/w"))[4:8] == ["--no-input", "--no-index", "--find-links", "/efs/w"]


def test_where_uv_cannot_install_pip_does_and_why_is_told(tmp_path: Path) -> None:
    uv, pip = tmp_path / "uv", tmp_path / "env" / "bin" / "python"
    uv.write_text("#!/bin/sh\necho no such index\nexit 2\n")
    pip.parent.mkdir(parents=True)
    pip.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/asked\n')
    for program in (uv, pip):
        program.chmod(0o755)
    told: list[str] = []
    making = VirtualEnvironment(directory=tmp_path / "env", uv=str(uv), environ=os.environ, report=told.append)
    making.install(LOCK, None)
    assert (tmp_path / "asked").read_text() == "-m pip install --no-input --require-hashes --requirement /p/lock.txt\n"
    assert "no such index" in told[0]
    with pytest.raises(RuntimeSetupError, match="Installing failed with status 2"):
        making.install(LOCK, tmp_path)
