"""Facts about reading what others can make: a regular file is read, and whatever else lies there ends with an error."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from agent.files.listing import read_listed
from agent.files.regular_file import read_regular
from agent.runs import follow, record, spending
from agent.runs.directory import RunDirectory, State
from agent.spec.states import STOP_GRACE_S
from agent.supervisor import archive
from tests.factories import make_spec


def test_a_regular_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "file", 5) == b"12345"
    assert read_listed(tmp_path / "file", 5) == b"12345"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        pytest.param(os.mkfifo, errno.EINVAL, id="a pipe, whose reader would wait for a writer"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), errno.ELOOP, id="a link to what never ends"),
        pytest.param(lambda path: path.symlink_to(path.parent / "file"), errno.ELOOP, id="a link to another file"),
        pytest.param(Path.mkdir, errno.EINVAL, id="a directory"),
        pytest.param(lambda path: path.open("wb").truncate(1 << 40), errno.EFBIG, id="a hole of a terabyte"),
    ],
)
def test_what_is_no_file_of_an_allowed_size_is_refused_at_once(tmp_path: Path, make: object, code: int) -> None:
    (tmp_path / "file").write_text("other")
    assert callable(make)
    make(tmp_path / "foreign")
    for read in (read_regular, read_listed):
        with pytest.raises(OSError) as caught:  # its number is compared
            read(tmp_path / "foreign")
        assert caught.value.errno == code


def test_a_pipe_in_place_of_a_result_keeps_no_record_waiting(tmp_path: Path) -> None:
    spec = make_spec(run_id="one")
    directory = RunDirectory(path=tmp_path / "one")
    directory.path.mkdir()
    directory.spec.write_text(spec.to_json())
    os.mkfifo(directory.path / "result.json")
    record.write_record(directory, State.starting(spec))
    assert json.loads((directory.path / "record.json").read_text())["result"] is None


@pytest.mark.parametrize("name", ["metrics.jsonl", "preflight.json", "spent.json", "origin.json", "stop.json"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_no_file_of_a_run_keeps_who_shows_it_waiting(tmp_path: Path, name: str, make: object) -> None:
    spec = make_spec(run_id="one")
    directory = RunDirectory(path=tmp_path / "one")
    directory.path.mkdir()
    directory.spec.write_text(spec.to_json())
    state = State.starting(spec)
    directory.write_state(state)
    assert callable(make)
    make(directory.path / name)
    assert follow.summary(state, directory)["run_id"] == "one"
    assert directory.stop_grace_s() == STOP_GRACE_S
    assert archive.destination(directory) == ("", "")
    assert spending.read(directory) is None
    record.write_record(directory, state)
