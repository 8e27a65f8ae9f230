from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.files.atomic_write import (
    StorageError,
    describe_full_disk,
    new_directory,
    open_to_append,
    replace_file,
    write_atomically,
)
from agent.files.file_lock import file_lock
from agent.staging.errors import DatasetError
from agent.staging.verified_write import write_verified


def test_failure_keeps_old_content_and_reports_path_and_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device \([0-9.]+ MiB free\); free space") as caught:
        replace_file(path, b"new")
    assert str(path) in str(caught.value)
    assert caught.value.free_bytes is not None
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "advice"),
    [("/run/x; No space left on device", "free space on "), ("/run/x; Permission denied", "check the directory")],
)
def test_advice_on_an_error_of_tensorflow_depends_on_its_text(tmp_path: Path, text: str, advice: str) -> None:
    assert f"; {advice}" in StorageError(tmp_path, OSError(text)).what


def test_free_space_is_that_of_the_mounted_directory_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, seen = os.statvfs, list[Path]()

    def statvfs(path: Path) -> os.statvfs_result:
        seen.append(path)
        return measure(path)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert "MiB are free" in describe_full_disk(tmp_path, "No space left on device")
    assert "MiB are free" in describe_full_disk(tmp_path / "missing" / "file", "No space left on device")
    assert seen == [tmp_path, tmp_path / "missing" / "file", tmp_path / "missing", tmp_path]


def test_file_has_its_mode_before_any_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: modes.append(os.fstat(file).st_mode & 0o777))
    write_atomically(tmp_path / "secret", "ü", mode=0o600)
    assert modes == [0o600]
    assert (tmp_path / "secret").read_bytes() == "ü".encode()


def test_link_in_place_of_partial_file_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr("threading.get_ident", lambda: 8)
    (tmp_path / "other").write_text("another's")
    (tmp_path / ".file.7-8.partial").symlink_to(tmp_path / "other")
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert (tmp_path / "other").read_text() == "another's"


def test_directory_gets_its_name_after_it_is_filled(tmp_path: Path) -> None:
    with new_directory(tmp_path / "run") as partial:
        assert not (tmp_path / "run").exists()
        (partial / "file").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "file"]


def test_directory_that_cannot_be_filled_is_removed(tmp_path: Path) -> None:
    with pytest.raises(KeyError), new_directory(tmp_path / "run") as partial:
        (partial / "file").touch()
        raise KeyError
    assert list(tmp_path.iterdir()) == []


FILL = """
import sys
from pathlib import Path
import numpy as np
from payload.training.checkpoints.checkpoint_files import CheckpointStore
from payload.training.checkpoints.checkpoint_storage import DirectoryStorage
from payload.training.progress import Progress
from payload.training.checkpoints.save_policy import Retention
from agent.files.atomic_write import StorageError
store = CheckpointStore(DirectoryStorage(Path(sys.argv[1]) / "checkpoints"), Retention(newest=9))
for step in range(1, 9):
    try:
        store.save(Progress(recipe="digits", seed=1, global_batch=1, total_steps=step), {"a": np.zeros(40_000)})
    except StorageError as error:
        print(error)
        break
newest, faults = store.newest_valid()
print(step, newest.progress.total_steps, len(faults), sorted(path.name for path in store.storage.path.iterdir()))
"""


@pytest.mark.root
def test_full_disk_leaves_earlier_checkpoints_intact(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    assert unshare
    script = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        [unshare, "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, FILL],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert "No space left on device" in done.stdout
    assert "4 3 0 ['step-00000001', 'step-00000002', 'step-00000003']" in done.stdout


ROOM_AFTER_ALL = """
mount -t tmpfs -o size=8m none "$1/kept" || exit 9
shift_dir=$1; python=$2; shift 2
"$python" -m payload.train "$@"; first=$?
ls "$shift_dir/kept"
mount -o remount,size=64m "$shift_dir/kept" || exit 9
"$python" -m payload.train "$@" --resume; second=$?
echo "status $first $second"
"""


@pytest.mark.full
@pytest.mark.root
@pytest.mark.tensorflow
def test_run_fails_on_a_full_disk_and_continues_after_space_is_freed(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    assert unshare
    kept, run_dir = tmp_path / "kept", tmp_path / "run"
    kept.mkdir()
    flags = ["--recipe", "digits", "--train-limit", "64", "--epochs", "4", "--checkpoint-epochs", "1"]
    places = ["--run-dir", str(run_dir), "--checkpoint-dir", str(kept)]
    done = subprocess.run(
        [unshare, "--mount", "sh", "-c", ROOM_AFTER_ALL, "sh", str(tmp_path), sys.executable, *flags, *places],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        timeout=600,
    )
    assert "status 1 0" in done.stdout, done.stdout + done.stderr
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("payload.train: error")]
    assert (
        "step-00000008: No space left on device" in said
        and "to continue training: `fab resume`, or add --resume" in said
    )
    for missed in ("step-00000006", "step-00000008"):
        assert f"warning: checkpoint {missed} was not written: cannot write" in done.stdout
    assert "\nstep-00000002\nstep-00000004\nwriter.json\n" in done.stdout
    assert "resumed from step-00000004" in done.stdout
    assert "epoch 4/4" in done.stdout


def test_append_creates_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for text in (b"one\n", b"two\n"):
        with open_to_append(path) as file:
            file.write(text)
    assert path.read_bytes() == b"one\ntwo\n"


def test_append_does_not_follow_links(tmp_path: Path) -> None:
    target, link = tmp_path / "bashrc", tmp_path / "launcher.log"
    target.write_text("mine\n")
    link.symlink_to(target)
    with pytest.raises(OSError, match=r"launcher\.log"):
        open_to_append(link)
    assert target.read_text() == "mine\n"


@pytest.mark.parametrize("place", ["lock", "data.part"])
def test_links_in_place_of_locks_or_partial_files_are_not_followed(tmp_path: Path, place: str) -> None:
    """With such a link, root on a worker could make the master's login user create or overwrite its own files."""
    target = tmp_path / "bashrc"
    (tmp_path / place).symlink_to(target)
    opens: dict[str, Callable[[], object]] = {
        "lock": lambda: file_lock(tmp_path / "lock").__enter__(),
        "data.part": lambda: write_verified(str(tmp_path / place), str(tmp_path / "data"), [b"x"]),
    }
    with pytest.raises((OSError, DatasetError)):
        opens[place]()
    assert not target.exists()
