"""Reading files that others write: listed files are found on NFS, and only regular files are read."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import sys
from pathlib import Path

import pytest

from agent.files import safe_read
from agent.files.safe_read import count_files, is_listed, listed_below, read_listed, read_regular
from agent.remote.ssh import Completed
from agent.runs import run_cost, run_log, run_record, run_summary
from agent.runs import stored_state as states
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.run_states import STOP_GRACE_S
from agent.supervisor import bucket_copy
from tests.factories import make_spec
from tests.nfs import nfs_client


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the login user's home, with the database of runs."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_file_is_found_through_directory_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS may report for a while that a new file does not exist although it is in the listing."""
    (tmp_path / "file").touch()

    def stat(path: Path, **_: bool) -> os.stat_result:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    monkeypatch.setattr(Path, "stat", stat)
    assert not (tmp_path / "file").exists()
    assert is_listed(tmp_path / "file")
    assert not is_listed(tmp_path / "other")
    assert not is_listed(tmp_path / "absent" / "file")
    assert not is_listed(tmp_path / "file" / "below")


def test_ctrl_c_at_any_step_of_opening_a_file_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    steps = itertools.count()

    def interrupt_at(step: int) -> object:
        left = itertools.count(-step)

        def profile(*_: object) -> None:
            if next(left) == 0:
                raise KeyboardInterrupt

        return profile

    for step in steps:
        try:
            sys.setprofile(interrupt_at(step))  # type: ignore[arg-type]
            safe_read.open_regular(tmp_path / "file").close()
            sys.setprofile(None)
            break
        except KeyboardInterrupt:
            sys.setprofile(None)
    assert next(steps) > 5


def test_files_are_searched_in_every_existing_folder(tmp_path: Path) -> None:
    (tmp_path / "set/a/b").mkdir(parents=True)
    for name in ("top", "a/one", "a/b/two"):
        (tmp_path / "set" / name).touch()
    wanted = ["top", "a/one", "a/b/two", "a/b/three", "c/d/four", "top/below", "a"]
    assert listed_below(tmp_path / "set", wanted) == {"top", "a/one", "a/b/two", "a"}
    assert listed_below(tmp_path / "absent", wanted) == frozenset()


@pytest.mark.root
def test_file_of_another_node_is_seen_after_earlier_miss(tmp_path: Path) -> None:
    (tmp_path / "server/set").mkdir(parents=True)
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        looked_for = ["file", "folder/file"]
        assert not is_listed(shared / "set/file")
        assert listed_below(shared / "set", looked_for) == frozenset()
        (tmp_path / "server/set/folder").mkdir()
        for name in looked_for:
            (tmp_path / "server/set" / name).write_bytes(b"here")
        assert read_listed(shared / "set/file") == b"here"
        assert listed_below(shared / "set", looked_for) == set(looked_for)


@pytest.mark.root
def test_metrics_of_a_listed_run_are_found_by_name_as_soon_as_they_exist(tmp_path: Path) -> None:
    """Otherwise `aws s3 sync` would skip them in the copy of a short run that was listed while it was queued."""
    (tmp_path / "server/one").mkdir(parents=True)
    with nfs_client(tmp_path / "server", tmp_path / "client") as shared:
        directory = RunDirectory(path=shared / "one")
        state = State.starting(make_spec(run_id="one"))
        directory.write_state(state)
        for each in (state, dataclasses.replace(state, state="stopped")):
            assert run_summary.summary(each, directory)["last"] is None
        (tmp_path / "server/one/metrics.jsonl").write_bytes(b"")
        assert directory.metrics.exists()


def test_regular_file_is_read_completely(tmp_path: Path) -> None:
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
def test_other_paths_and_too_large_files_are_rejected_immediately(tmp_path: Path, make: object, code: int) -> None:
    (tmp_path / "file").write_text("other")
    assert callable(make)
    make(tmp_path / "foreign")
    for read in (read_regular, read_listed):
        with pytest.raises(OSError) as caught:  # the test compares its errno
            read(tmp_path / "foreign")
        assert caught.value.errno == code


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_no_file_of_a_run_blocks_its_reader(tmp_path: Path, make: object) -> None:
    spec = make_spec(run_id="one")
    directory = RunDirectory(path=tmp_path / "one")
    directory.path.mkdir()
    directory.spec.write_text(spec.to_json())
    state = State.starting(spec)
    directory.write_state(state)
    assert callable(make)
    for name in ("metrics.jsonl", "preflight.json", "spent.json", "origin.json", "stop.json", "result.json"):
        make(directory.path / name)
    assert run_summary.summary(state, directory)["run_id"] == "one"
    assert directory.stop_grace_s() == STOP_GRACE_S
    with pytest.raises(ValueError, match=r"origin\.json, which names the bucket, cannot be read"):
        bucket_copy.destination(directory)
    assert run_cost.read_spent(directory) is None
    run_record.write_record(directory, state)
    assert json.loads((directory.path / "record.json").read_text())["result"] is None
    for path in (directory.path / "state.json", directory.log):
        path.unlink(missing_ok=True)
        make(path)
    states.import_copies(tmp_path)
    assert directory.stored_state() == state
    assert run_log.last_lines(directory.log) == []


@pytest.mark.parametrize("grace", ["1e300", "NaN", "-1", "Infinity", '"x"', "9" * 5000])
def test_invalid_grace_time_is_replaced_by_default(tmp_path: Path, grace: str) -> None:
    """Otherwise a rank could run on indefinitely after a stop, for example after its cost limit."""
    (tmp_path / "stop.json").write_text(f'{{"grace_s": {grace}}}')
    assert RunDirectory(path=tmp_path).stop_grace_s() == STOP_GRACE_S


def test_giant_result_is_left_out_of_the_record(tmp_path: Path) -> None:
    """Parsing this text would take 2 GiB of memory."""
    spec = make_spec(run_id="one")
    directory = RunDirectory(path=tmp_path / "one")
    directory.path.mkdir()
    directory.write_state(State.starting(spec))
    (directory.path / "result.json").write_text('{"a": [' + "[]," * (9 << 20) + "0]}")
    assert run_record.record(directory)["result"] is None


def test_folders_of_any_depth_are_counted_as_far_as_their_path_goes(deep: Path) -> None:
    (deep / "file").write_text("12345")
    (deep / "link").symlink_to("/etc/passwd")
    assert count_files(deep) == (1, 5)
    assert count_files(deep / "absent") == (0, 0)


def test_run_with_folders_of_any_depth_is_recorded_and_copied(deep: Path) -> None:
    directory = RunDirectory(path=deep / "one")
    directory.path.mkdir()
    directory.write_state(State.starting(make_spec(run_id="one")))
    (deep / "d").rename(directory.path / "work")
    assert run_record.record(directory)["files"] == 1
    copier = bucket_copy.Copier(directory, lambda *_: Completed(status=0, output=""))
    copier.address = "s3://bucket/runs/one"
    assert copier.finish() in ("", "the AWS CLI is not installed on the master")


def test_only_the_first_of_millions_of_files_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_read, "MAX_ENTRIES", 3)
    for name in "abcdefgh":
        (tmp_path / name).touch()
    assert all(is_listed(tmp_path / name) for name in "abcdefgh")
    assert not is_listed(tmp_path / "other")
    assert count_files(tmp_path) == (3, 0)
