"""Fetching: all or nothing, and earlier results are kept."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import DeepcdkError, RemoteError
from cluster.master_answers import AnswerError
from cluster.ssh import fetch
from cluster.ssh.fetch import MARKER, PREFIX, stored_name, unpack
from cluster.ssh.master import SilenceError
from cluster.ssh.transfer_on_master import MAX_HEADER
from tests.words import FILE_NAMES


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def blocks(data: bytes, size: int = 1000, error: Exception | None = None) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]
    if error:
        raise error


RUN: Final = "20261120-121314-digits-ab12"
RESULT = tar_of({"result.json": b"{}", "events/one": b"x" * 5000})


def test_run_is_stored_under_its_id(tmp_path: Path) -> None:
    fetched = unpack(blocks(RESULT), tmp_path / "runs", RUN)
    assert (fetched.directory, fetched.files, fetched.size_bytes) == (tmp_path / "runs" / RUN, 2, 5002)
    assert (tmp_path / "runs" / RUN / "events" / "one").read_bytes() == b"x" * 5000
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == [RUN]


@pytest.mark.parametrize(
    "error", [SilenceError("cable"), RemoteError("failed", status=1, output=""), KeyboardInterrupt()]
)
def test_interrupted_fetch_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        unpack(blocks(RESULT, error=error), tmp_path, RUN)
    assert list(tmp_path.iterdir()) == []


def test_interrupted_stream_keeps_earlier_results(tmp_path: Path) -> None:
    unpack(blocks(tar_of({"result.json": b"earlier"})), tmp_path, RUN)
    with pytest.raises(DeepcdkError, match="are incomplete"):
        unpack(blocks(RESULT[:3000]), tmp_path, RUN)
    assert (tmp_path / RUN / "result.json").read_text() == "earlier"
    assert [entry.name for entry in tmp_path.iterdir()] == [RUN]


def test_second_fetch_adds_new_files_and_keeps_own_files(tmp_path: Path) -> None:
    unpack(blocks(RESULT), tmp_path, RUN)
    (tmp_path / RUN / "notes.txt").write_text("mine")
    unpack(blocks(tar_of({"result.json": b"new"})), tmp_path, RUN)
    assert (tmp_path / RUN / "result.json").read_text() == "new"
    assert (tmp_path / RUN / "notes.txt").read_text() == "mine"
    assert (tmp_path / RUN / "events" / "one").exists()


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        DeepcdkError, match=r"cannot be stored: Not a directory\n  where: .*/file/runs\n  do: free some space"
    ):
        unpack(blocks(RESULT), tmp_path / "file" / "runs", RUN)


def tree(directory: Path) -> dict[str, bytes | str | None]:
    """Return every file, link and directory below a directory, with its content."""
    return {
        str(path.relative_to(directory)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in directory.rglob("*")
    }


@pytest.mark.parametrize(
    "run_id",
    [
        *("..", "", "/etc", "-rf", f"{RUN}\n", RUN.upper(), f"{RUN}/..", "cluster", "20261120-121314-digits"),
    ],
)
def test_only_a_generated_id_names_a_directory(tmp_path: Path, run_id: str) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "session.py").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(DeepcdkError, match="is not the id of a run that deepcdk started"):
        unpack(blocks(tar_of({"session.py": b"theirs"})), tmp_path, run_id)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("record", [None, '{"run_id": "20261120-121314-digits-ab13"}', "[]", "link"])
def test_directory_not_created_by_fetch_is_unchanged(tmp_path: Path, record: str | None) -> None:
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "session.py").write_text("mine")
    (tmp_path / "record").write_text(f'{{"run_id": "{RUN}"}}')
    if record == "link":
        (tmp_path / RUN / "record.json").symlink_to(tmp_path / "record")
    elif record:
        (tmp_path / RUN / "record.json").write_text(record)
    before = tree(tmp_path)
    with pytest.raises(DeepcdkError, match="was not created by a fetch of this run"):
        unpack(blocks(tar_of({"session.py": b"theirs"})), tmp_path, RUN)
    assert tree(tmp_path) == before


def test_directory_with_the_record_of_the_run_is_updated(tmp_path: Path) -> None:
    (tmp_path / RUN).mkdir()
    (tmp_path / RUN / "record.json").write_text(f'{{"run_id": "{RUN}"}}')
    unpack(blocks(RESULT), tmp_path, RUN)
    assert (tmp_path / RUN / "result.json").exists()


@pytest.mark.parametrize("name", ["/tmp/evil", "a/../../fabfile.py", "a\x1b[2J/../.."])
@pytest.mark.parametrize("there", [True, False], ids=["merged", "new"])
def test_name_outside_of_the_run_is_reported_and_nothing_is_written(tmp_path: Path, name: str, there: bool) -> None:
    if there:
        (tmp_path / "runs" / RUN).mkdir(parents=True)
    (tmp_path / "runs").mkdir(exist_ok=True)
    before = tree(tmp_path)
    with pytest.raises(AnswerError, match=f"`fetch {RUN}` is invalid: it has an ent") as caught:
        unpack(blocks(tar_of({"result.json": b"{}", name: b"theirs"})), tmp_path / "runs", RUN)
    assert ascii(name) in str(caught.value)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("link", [f"runs/{RUN}", f"runs/{RUN}/events", f"runs/{RUN}/events/deep"])
@pytest.mark.parametrize("to", ["elsewhere", "runs", "nowhere"])
def test_link_in_earlier_fetch_is_not_followed(tmp_path: Path, link: str, to: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / link
    place.parent.mkdir(parents=True)
    if place.name != RUN:
        (tmp_path / "runs" / RUN / MARKER).write_text(f'{{"run_id": "{RUN}"}}')
    place.symlink_to(tmp_path / to)
    before = tree(tmp_path)
    files = {"a.json": b"{}", "events/deep/one": b"x", "events/two": b"y"}
    with pytest.raises(DeepcdkError, match="is a symbolic link to") as caught:
        unpack(blocks(tar_of(files)), tmp_path / "runs", RUN)
    assert str(place) in str(caught.value)
    assert tree(tmp_path) == before


def test_link_in_place_of_file_is_replaced_and_its_target_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    unpack(blocks(RESULT), tmp_path / "runs", RUN)
    (tmp_path / "runs" / RUN / "result.json").unlink()
    (tmp_path / "runs" / RUN / "result.json").symlink_to(tmp_path / "mine")
    unpack(blocks(tar_of({"result.json": b"new"})), tmp_path / "runs", RUN)
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "runs" / RUN / "result.json").read_text() == "new"


@pytest.mark.parametrize("taken", ["events", "result.json/one"])
def test_file_and_directory_with_same_name_are_reported_before_writing(tmp_path: Path, taken: str) -> None:
    place = tmp_path / RUN / taken
    place.parent.mkdir(parents=True)
    (tmp_path / RUN / MARKER).write_text(f'{{"run_id": "{RUN}"}}')
    place.write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(DeepcdkError, match=r"is (?:not )?a directory"):
        unpack(blocks(RESULT), tmp_path, RUN)
    assert tree(tmp_path) == before


@given(data=st.binary(max_size=1500))
def test_invalid_tar_stream_is_reported_and_leaves_no_files(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    into = tmp_path_factory.mktemp("into")
    spoilt = bytearray(RESULT)
    spoilt[: len(data)] = data
    with contextlib.suppress(DeepcdkError):
        unpack(blocks(bytes(spoilt)), into, RUN)
        return
    assert tree(into) == {}


def config_of(marker: Path) -> bytes:
    """Return a git configuration that runs a program at `git status`."""
    program = marker.with_name("program")
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    return f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {program}\n".encode()


REPOSITORIES = {
    "usual": ("made/.git/", "made"),
    "bare": ("made/deep/x/", "made/deep/x"),
}


@pytest.mark.parametrize("kind", REPOSITORIES)
@pytest.mark.parametrize("twice", [False, True], ids=["at once", "in two fetches"])
def test_git_finds_no_repository_in_fetched_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, twice: bool
) -> None:
    folder, visited = REPOSITORIES[kind]
    marker = tmp_path / "executed"
    files = {f"{folder}HEAD": b"ref: refs/heads/main\n", f"{folder}config": config_of(marker)}
    others = {f"{folder}objects/x": b"", f"{folder}refs/x": b"", "result.json": b"{}", "made/.gitignore": b"*.o"}
    for part in (files, others) if twice else ({**files, **others},):
        unpack(blocks(tar_of(part)), tmp_path / "runs", RUN)
    there = tmp_path / f"runs/{RUN}" / visited
    there.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "status"], cwd=there, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert not marker.exists()
    assert (tmp_path / f"runs/{RUN}/result.json").read_text() == "{}"
    assert (tmp_path / f"runs/{RUN}/made/fetched-.gitignore").exists()
    assert not any(path.name.lower() == ".git" for path in (tmp_path / "runs").rglob("*"))
    assert "git, editors and other programs could execute or load them" in capsys.readouterr().err


def test_worktree_elsewhere_is_not_a_repository_either(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    common = {"made/store/config": config_of(marker), "made/store/objects/x": b"", "made/store/refs/x": b""}
    files = {"made/x/HEAD": b"ref: refs/heads/main\n", "made/x/commondir": b"../store\n", **common}
    unpack(blocks(tar_of(files)), tmp_path, RUN)
    command = ["git", "status"]
    done = subprocess.run(
        command, cwd=tmp_path / RUN / "made/x", capture_output=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 128
    assert not marker.exists()


OBEYED: Final = (
    *(".git", ".hg", ".jj", ".svn", ".envrc", ".env", ".vscode", ".idea", ".venv", ".gitattributes", ".gitmodules"),
    *(".editorconfig", ".python-version", ".cursorrules", ".deepcdk-run", "...", "..x", "HEAD", "_darcs", "CVS"),
    *("CLAUDE.md", "AGENTS.md", "copilot-instructions.md", "pyvenv.cfg", "fabfile.py", "fabfile"),
    *("conftest.pyc", "sitecustomize.py", "cdk.json", "mise.toml", "opencode.json"),
)


@st.composite
def disguised(draw: st.DrawFn) -> str:
    """Return a name from OBEYED in a spelling that another file system considers equal."""
    ignored = st.sampled_from(["", "", "", "\u200c", "\u200d", "\u00ad", "\ufeff", "\u2060", "\ufe0f", "\U000e0001"])
    name = ""
    for each in draw(st.sampled_from(OBEYED)):
        wide = chr(ord(each) + 0xFEE0)
        name += draw(ignored) + draw(st.sampled_from([each, each.lower(), each.upper(), wide, wide.upper()]))
    return name + draw(ignored) + draw(st.sampled_from(["", ".", " ", ". .", "\u3000", "::$INDEX_ALLOCATION", ":x"]))


@settings(max_examples=300)
@given(name=disguised())
def test_disguised_dangerous_names_are_renamed(name: str) -> None:
    assert stored_name(name).startswith(PREFIX)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "\u2024git",
            "\ufe52git",
            "\uff0egit",
            "\u2026",
            "GIT~1",
            "git~12",
            "CLAUDE~1.MD",
            "GI7EBA~1",
            "x:.git",
            "c:x",
        ),
        *("a\\.git\\b", "a\\..\\..\\b", "C:\\x", "\\x", "\\\\host\\x", "\xa0.git", "HEAD::$DATA", "De\u017fktop.ini"),
    ],
)
def test_windows_and_macos_spellings_are_renamed(name: str) -> None:
    stored = stored_name(name)
    assert stored.startswith(PREFIX)
    assert not set(stored) & set("\\:")


@given(name=FILE_NAMES)
def test_stored_name_is_stable_and_short_enough(name: str) -> None:
    stored = stored_name(name)
    assert stored == name or stored.startswith(PREFIX)
    assert stored_name(stored) == stored
    assert len(os.fsencode(stored)) <= 255


@pytest.mark.parametrize(
    "name",
    [
        *("result.json", "events.out.tfevents.1764264000.host.1", "2026-11-27T12:00:00.json", "x.partial", "file.txt~"),
        *(
            "日本語.txt",
            "modèle.keras",
            "HEAD.json",
            "head.weight.npy",
            "fetched-.git",
            "a b",
            "_private",
            "setup.py",
            "pyproject.toml",
            "setup.cfg",
        ),
    ],
)
def test_usual_names_are_kept(name: str) -> None:
    assert stored_name(name) == name


def test_folder_may_be_called_head(tmp_path: Path) -> None:
    unpack(blocks(tar_of({"model/head/weights.npy": b"1"})), tmp_path, RUN)
    assert (tmp_path / RUN / "model/head/weights.npy").read_bytes() == b"1"


def test_files_with_the_same_stored_name_are_all_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"a/.x": b"1", "a/fetched-.x": b"2", ".vscode/tasks.json": b"3", f".{'n' * 254}": b"4"}
    fetched = unpack(blocks(tar_of(files)), tmp_path, RUN)
    stored = {name: data for name, data in tree(tmp_path / RUN).items() if data and name != MARKER}
    assert sorted(map(str, stored.values())) == sorted(map(str, files.values()))
    assert all(not part.startswith(".") for name in stored for part in name.split("/"))
    assert fetched.files == 4
    assert "warning: 4 of the files in" in (said := " ".join(capsys.readouterr().err.split()))
    assert "'a/.x' is now 'a/fetched-.x'" in said


def test_fetched_file_cannot_be_executed(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as archive:
        entry = tarfile.TarInfo("python")
        entry.mode = 0o4755
        archive.addfile(entry)
    unpack(blocks(buffer.getvalue()), tmp_path, RUN)
    assert (tmp_path / RUN / "python").stat().st_mode & 0o7777 == 0o644


def test_repeated_name_is_rejected(tmp_path: Path) -> None:
    repeated = b"".join(tar_of({"a": b"x"})[:1024] for _ in range(3)) + bytes(1024)
    with pytest.raises(DeepcdkError, match="'a' occurs twice"):
        unpack(blocks(repeated), tmp_path, RUN)
    assert list(tmp_path.iterdir()) == []


def test_deeply_nested_folders_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DeepcdkError, match="is in more than 100 nested folders"):
        unpack(blocks(tar_of({"a/" * 1500 + "x": b""})), tmp_path, RUN)
    assert list(tmp_path.iterdir()) == []


def test_endless_stream_leaves_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "CHECKED_EVERY", 1 << 20)
    monkeypatch.setattr(fetch, "KEPT_FREE", 1 << 60)
    entry = tarfile.TarInfo("checkpoints/all")
    entry.size = 1 << 40
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield entry.tobuf(tarfile.GNU_FORMAT)
        while True:
            sent += 1 << 16
            yield bytes(1 << 16)

    with pytest.raises(
        DeepcdkError, match=r"stopped after 1\.. MB: .* of the disk are free, but .* stay free\n.*where"
    ):
        unpack(endless(), tmp_path, RUN)
    assert sent < 4 << 20
    assert list(tmp_path.iterdir()) == []


def test_endless_entries_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_ENTRIES", 10)
    unpack(blocks(tar_of({f"x{n}": b"" for n in range(10)})), tmp_path, RUN)
    with pytest.raises(DeepcdkError, match="more than 10 files and directories"):
        unpack(blocks(tar_of({f"x{n}": b"" for n in range(11)})), tmp_path, "20261120-121314-digits-ab13")
    assert [path.name for path in tmp_path.iterdir()] == [RUN]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_huge_header_is_rejected(tmp_path: Path, kind: bytes, first: bool) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 40
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        if not first:
            yield tar_of({"a": b""})[:512]
        yield header.tobuf(tarfile.GNU_FORMAT)
        while True:
            sent += 1 << 16
            yield bytes(1 << 16)

    with pytest.raises(DeepcdkError, match=f"has a header of {1 << 40} bytes"):
        unpack(endless(), tmp_path, RUN)
    assert sent < 2 * MAX_HEADER
