"""Creation and caching of a root with Debian's packages."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from localcloud.hosts.debian_image import DISTRIBUTIONS
from localcloud.hosts.debian_root import ImageError, archive_hosts, default_cache, root_of

DEBIAN = DISTRIBUTIONS["debian-12"].root


def stand_in(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Replace mmdebstrap by a script. $ROOT is the directory that it must create."""
    directory.mkdir()
    program = directory / "mmdebstrap"
    program.write_text(f'#!/bin/bash\nROOT="${{@: -1}}"\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_root_is_created_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path / "bin", monkeypatch, 'mkdir "$ROOT"; echo once >>"$ROOT/../made"')
    cache = tmp_path / "cache"
    root = root_of(DEBIAN, cache)
    assert (root.is_dir(), root_of(DEBIAN, cache)) == (True, root)
    assert (cache / "made").read_text() == "once\n"
    assert stat.S_IMODE(root.stat().st_mode) == 0o755


def test_failed_root_leaves_nothing_and_reports_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path / "bin", monkeypatch, 'mkdir "$ROOT"; echo "E: no route to the archive" >&2; exit 25')
    with pytest.raises(ImageError, match=r"the root file system of debian-12:\nE: no route to the archive"):
        root_of(DEBIAN, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == []


def test_missing_mmdebstrap_is_reported_with_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="apt-get install mmdebstrap"):
        root_of(DEBIAN, tmp_path / "cache")


def test_archive_hosts_come_from_active_lines(tmp_path: Path) -> None:
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    lines = "deb http://one.example.org/debian x main\n# deb http://old.example.org/debian x main\n"
    (tmp_path / "etc/apt/sources.list").write_text(lines)
    (tmp_path / "etc/apt/sources.list.d/more.sources").write_text("Types: deb\nURIs: https://two.example.org/debian\n")
    (tmp_path / "etc/apt/sources.list.d/off.disabled").write_text("deb http://three.example.org/debian x main\n")
    assert archive_hosts(tmp_path) == {"one.example.org", "two.example.org"}


def test_roots_are_kept_in_the_users_cache() -> None:
    assert default_cache({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/localcloud")
    assert default_cache({}) == Path.home() / ".cache/localcloud"
