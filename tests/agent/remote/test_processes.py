"""Signals to a run: its processes are found by their environment, and no others are affected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.remote.processes import (
    RunProcess,
    command,
    parse_parent,
    processes,
    select,
    signal_run,
)
from agent.spec.launchers import RANK_PARENT
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[3]


def start(runs: Path, run_id: str, **variables: str) -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], "DEEPCDK_RUNS": str(runs), "DEEPCDK_RUN": run_id, **variables}
    process = subprocess.Popen(["sleep", "60"], env=environment)
    eventually(lambda: b"sleep" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    return process


def marks(runs: Path, run_id: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "DEEPCDK_RUNS": str(runs), "DEEPCDK_PREPARATION": run_id}


def test_parent_is_found_for_name_with_parentheses() -> None:
    assert parse_parent("77 (a) b (c)) S 12 77 77 0") == 12


def test_only_given_run_is_killed(tmp_path: Path) -> None:
    mine, other, elsewhere = start(tmp_path, "one"), start(tmp_path, "two"), start(tmp_path / "x", "one")
    try:
        result = signal_run(
            str(tmp_path), run_id="one", others=False, ranks_only=False, number=signal.SIGKILL, wait_s=0
        )
        assert result["signalled"] == [mine.pid]
        assert mine.wait(timeout=10) == -signal.SIGKILL
        assert (other.poll(), elsewhere.poll()) == (None, None)
        result = signal_run(str(tmp_path), run_id="new", others=True, ranks_only=False, number=signal.SIGKILL, wait_s=0)
        assert result["signalled"] == [other.pid]
        assert elsewhere.poll() is None
    finally:
        for process in (mine, other, elsewhere):
            process.kill()
            process.wait()


def test_node_preparation_is_found_by_its_run(tmp_path: Path) -> None:
    preparing, other = (subprocess.Popen(["sleep", "60"], env=marks(tmp_path, run_id)) for run_id in ("one", "two"))
    try:
        eventually(lambda: len(list(processes(str(tmp_path)))) == 2)
        result = signal_run(
            str(tmp_path), run_id="one", others=False, ranks_only=False, number=signal.SIGKILL, wait_s=0
        )
        assert result["signalled"] == [preparing.pid]
        assert preparing.wait(timeout=10) == -signal.SIGKILL
        result = signal_run(str(tmp_path), run_id="two", others=False, ranks_only=True, number=signal.SIGKILL, wait_s=0)
        assert (result["signalled"], other.poll()) == ([], None)
    finally:
        for process in (preparing, other):
            process.kill()
            process.wait()


def test_graceful_signal_is_sent_to_ranks_and_not_to_launcher(tmp_path: Path) -> None:
    launcher, rank = start(tmp_path, "one"), start(tmp_path, "one", DEEPCDK_RANK="0")
    try:
        assert {each.pid: each.rank for each in processes(str(tmp_path))} == {launcher.pid: None, rank.pid: 0}
        result = signal_run(str(tmp_path), run_id="one", others=False, ranks_only=True, number=signal.SIGTERM, wait_s=0)
        assert result["signalled"] == [rank.pid]
        assert rank.wait(timeout=10) == -signal.SIGTERM
        assert launcher.poll() is None
    finally:
        for process in (launcher, rank):
            process.kill()
            process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("launcher", ["gloo", "group"])
def test_signals_reach_all_processes_of_a_rank_and_its_last_lines_arrive(
    tmp_path: Path, launcher: str, number: signal.Signals
) -> None:
    """A program may start processes without the run's variables."""
    place = {"DEEPCDK_RUNS": str(tmp_path), "DEEPCDK_RUN": "one", "HOROVOD_RANK": "0", "RANK": "0"}
    words = [sys.executable, *RANK_PARENT, launcher, "sh", "-c", "echo begun; env -i sleep 60; echo over"]
    log = tmp_path / "log"
    with log.open("wb") as file:
        parent = subprocess.Popen(words, cwd=PROJECT, env={"PATH": os.environ["PATH"], **place}, stdout=file)
    try:
        found = eventually(lambda: [each for each in processes(str(tmp_path)) if each.is_rank][2:])
        assert [each.rank for each in processes(str(tmp_path)) if each.reports] == [None]
        done = signal_run(str(tmp_path), run_id="one", others=False, ranks_only=True, number=number, wait_s=10)
        assert done["left"] == [] and (found[0].pid in done["signalled"]) == (number == signal.SIGKILL)
        parent.wait(timeout=10)
        output = log.read_text()
        assert "begun" in output and "over" not in output
        if launcher == "group":
            assert output.endswith(f"[launcher] rank 0 ended: {-number}\n")
    finally:
        parent.kill()
        parent.wait()


def test_live_runs_on_other_nodes_keep_their_launchers_on_the_master() -> None:
    found = [
        RunProcess(pid=n, parent=1, run_id=run, is_rank=False) for n, run in ((10, "one"), (11, "two"), (12, "six"))
    ]
    assert [p.pid for p in select(found, run_id="one", others=True, ranks_only=False, spared=["six"])] == [11]


def test_command_line_works_like_the_function(tmp_path: Path) -> None:
    mine = start(tmp_path, "one")
    try:
        argv = command(sys.executable, str(tmp_path), run_id="one", ranks_only=False, number=signal.SIGTERM, wait_s=0)
        done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert str(mine.pid) in done.stdout
        assert mine.wait(timeout=10) == -signal.SIGTERM
        assert list(processes(str(tmp_path))) == []
    finally:
        mine.kill()
        mine.wait()
