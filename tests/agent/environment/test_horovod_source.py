"""The patch of Horovod's source, which keeps the other ranks alive when one is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.horovod_source import EDITS, FILE, patch
from agent.environment.toolchain import HorovodError

PROGRAM = Path(__file__).with_name("summing_program.py")
ROOT = Path(__file__).parents[3]
RANKS = 8
LEARNED = 7
"""Exit status of a rank that Horovod told about the loss of another one."""


def release(folder: Path, texts: dict[str, str]) -> None:
    """Write the parts of Horovod's source that the patch reads."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def passages(file: str, part: str) -> str:
    """Return the old or new passages of a file, surrounded by other text."""
    return "first\n" + "between\n".join(getattr(edit, part) for edit in EDITS if edit.file == file) + "last\n"


def test_patches_replace_only_their_passages(tmp_path: Path) -> None:
    files = {edit.file for edit in EDITS}
    release(tmp_path, {file: passages(file, "old") for file in files})
    patch(tmp_path)
    assert {file: (tmp_path / file).read_text() for file in files} == {file: passages(file, "new") for file in files}


@pytest.mark.parametrize("times", [0, 2])
def test_unexpected_source_is_rejected_and_left_unchanged(tmp_path: Path, times: int) -> None:
    texts = {edit.file: passages(edit.file, "old") for edit in EDITS}
    texts[FILE] = texts[FILE].replace(EDITS[-1].old, EDITS[-1].old * times)
    release(tmp_path, texts)
    with pytest.raises(HorovodError, match=rf"operations\.cc: expected this passage once, found {times}"):
        patch(tmp_path)
    assert {file: (tmp_path / file).read_text() for file in texts} == texts


@pytest.mark.full
@pytest.mark.horovod
def test_other_ranks_survive_a_rank_killed_during_allreduce() -> None:
    """Without the patch, one or two of the others exited with SIGABRT in each of five attempts."""
    started = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(RANKS), str(RANKS // 2)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        said, errors = started.communicate(timeout=240)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # includes its ranks if it hangs
    assert started.returncode == 0, errors[-3000:]
    assert json.loads(said) == [LEARNED] * (RANKS - 1), errors[-3000:]
