"""Facts about what the laptop has the master run: nothing leaves its directory, and only plain files travel."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cluster.farside import pack, unpack
from cluster.push import farside_command


def archive_of(*entries: tarfile.TarInfo) -> tarfile.TarFile:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(b"x" * entry.size))
    buffer.seek(0)
    return tarfile.open(fileobj=buffer)


def entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type = kind
    for field, value in fields.items():
        setattr(made, field, value)
    return made


@pytest.mark.parametrize(
    "bad",
    [
        entry("../escape", size=1),
        entry("/etc/escape", size=1),
        entry("a/../../escape", size=1),
        entry("link", tarfile.SYMTYPE, linkname="/etc/passwd"),
        entry("hard", tarfile.LNKTYPE, linkname="/etc/passwd"),
        entry("device", tarfile.CHRTYPE),
        entry("pipe", tarfile.FIFOTYPE),
    ],
)
def test_an_entry_that_could_leave_the_directory_is_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with archive_of(bad) as archive, pytest.raises(tarfile.TarError, match="plain file"):
        unpack(archive, tmp_path / "in")
    assert not (tmp_path / "escape").exists()


def test_setuid_does_not_travel(tmp_path: Path) -> None:
    with archive_of(entry("run", size=3, mode=0o6755)) as archive:
        assert unpack(archive, tmp_path) == 1
    assert (tmp_path / "run").stat().st_mode & 0o7777 == 0o755


def test_a_directory_is_sent_without_what_is_excluded_half_written_or_a_link(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "big").write_text("x")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "one").write_text("x")
    (tmp_path / "state.json").write_text("{}")
    (tmp_path / ".state.json.1.partial").write_text("{")
    (tmp_path / "link").symlink_to("state.json")
    command = farside_command("send", str(tmp_path), "checkpoints")
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        assert sorted(archive.getnames()) == ["events/one", "state.json"]


def test_what_vanishes_while_a_run_goes_on_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("checkpoints/step-1/arrays.npz", "checkpoints/.partial-step-2/arrays.npz", "state.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    opened = Path.open

    def vanish(path: Path, *arguments: Any) -> Any:
        if path.name == "arrays.npz":
            path.unlink()
        return opened(path, *arguments)

    monkeypatch.setattr(Path, "open", vanish)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        pack(archive, tmp_path)
        assert archive.getnames() == ["state.json"]


def test_a_missing_directory_has_a_status_of_its_own(tmp_path: Path) -> None:
    command = farside_command("send", str(tmp_path / "none"))
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=False)
    assert (done.returncode, "no directory" in done.stderr) == (4, True)
