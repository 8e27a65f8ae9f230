"""The laptop's program on the master: it never writes outside its directory, and only plain files are sent."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.ssh.fetch import MARKER, stored_name
from cluster.ssh.fetch import unpack as unpack_stream
from cluster.ssh.push import bootstrap_command
from cluster.ssh.transfer_on_master import is_half_written, pack, unpack
from tests.words import FILE_NAMES, NASTIEST

RUN: Final = "20261120-121314-digits-ab12"


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
        entry("sparse", tarfile.GNUTYPE_SPARSE),
        entry("holes", pax_headers={"GNU.sparse.map": "0,1", "GNU.sparse.size": "9"}),
        entry(".", size=1),
        entry("nul", size=1, pax_headers={"path": "nul\0"}),
    ],
)
def test_entry_outside_of_directory_is_rejected(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    with archive_of(bad) as archive, pytest.raises(tarfile.TarError, match="plain file"):
        unpack(archive, tmp_path / "in")
    assert not (tmp_path / "escape").exists()


def test_directory_is_sent_without_excluded_partial_files_and_links(tmp_path: Path) -> None:
    for name in ("checkpoints/big", "events/one", "state.json", ".state.json.1.partial"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link").symlink_to("state.json")
    command = bootstrap_command("send", str(tmp_path), "checkpoints")
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        assert sorted(archive.getnames()) == ["events/one", "state.json"]


def test_folders_nested_too_deeply_to_be_sent_are_reported_in_one_line(deep: Path) -> None:
    command = bootstrap_command("send", str(deep))
    done = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=False)
    said = f"{deep} has too many nested folders: pack them into one file in your program\n"
    assert (done.returncode, done.stderr) in ((1, said), (0, "")), "since Python 3.12 it lists any depth"


def test_setuid_is_not_transferred(tmp_path: Path) -> None:
    with archive_of(entry("run", size=3, mode=0o6755)) as archive:
        assert unpack(archive, tmp_path) == 1
    assert (tmp_path / "run").stat().st_mode & 0o7777 == 0o755


@settings(max_examples=25)
@given(name=FILE_NAMES, data=st.binary(max_size=50))
def test_file_of_any_name_is_sent_and_keeps_its_name(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: bytes
) -> None:
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    (here / "work" / name).mkdir(parents=True)
    (here / "work" / name / name).write_bytes(data)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as archive:
        pack(archive, here)
    sent = unpack_stream(iter([buffer.getvalue()]), there, RUN).files
    assert sent == (0 if is_half_written(name) else 1)
    assert is_half_written(name) or (there / RUN / "work" / stored_name(name) / stored_name(name)).read_bytes() == data


def test_only_partial_files_of_the_run_are_omitted() -> None:
    ours = (".state.json.12.34.partial", ".partial-step-7", ".model.partial")
    users = ("x.partial", "partial-1", ".hidden", ".partials", "a.partial.b")
    assert [is_half_written(name) for name in (*ours, *users)] == [True] * len(ours) + [False] * len(users)


@pytest.mark.parametrize("variable", ["LANG", "LC_ALL"])
def test_special_names_pass_through_python_of_master_in_any_locale(tmp_path: Path, variable: str) -> None:
    names = {name for name in NASTIEST if name and "/" not in name}
    (tmp_path / "here").mkdir()
    for name in names:
        (tmp_path / "here" / name).touch()
    words = [sys.executable, *bootstrap_command("send", str(tmp_path / "here"))[1:]]
    environment = {"PATH": os.environ["PATH"], variable: "C.UTF-8" if variable == "LC_ALL" else "C"}
    done = subprocess.run(words, env=environment, capture_output=True, check=True)
    fetched = unpack_stream(iter([done.stdout]), tmp_path, RUN)
    assert {path.name for path in fetched.directory.iterdir()} == {MARKER, *map(stored_name, names)}


def test_files_that_vanish_during_transfer_are_omitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
