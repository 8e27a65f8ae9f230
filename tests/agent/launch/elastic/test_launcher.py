"""Facts about the launcher of elastic runs, whose ranks are small programs here, on hosts that are this machine."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from agent.launch.elastic.silent_hosts import SILENT_S
from agent.spec.nodes import Node
from tests.agent.conftest import UNREACHABLE
from tests.factories import make_node
from tests.payload.training.elastic.local_run import LocalRun
from tests.waiting import eventually

pytestmark = [pytest.mark.horovod, pytest.mark.root]

RANK = """\
import os, pathlib, signal, sys, time, urllib.request
from agent.launch.elastic.launcher_client import DismissedError, LauncherClient
from agent.spec.elastic import FirstStep

launcher = LauncherClient.from_environ(os.environ)
member, directory = os.environ["DEEPCDK_MEMBER"], pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
(directory / f"started-{member}").touch()
while True:
    try:
        place = launcher.wait_for_place((directory / f"data-{member}").read_bytes())
    except DismissedError:
        print("dismissed", flush=True)
        sys.exit(0)
    launcher.report_joined()
    print("place", place.round, place.rank, place.size, flush=True)
    if place.round > 1 and place.rank == 0:
        launcher.report_step(FirstStep(round=place.round, step=5, steps_lost=1, seconds=0.5))
    (directory / f"placed-{place.round}-{member}").touch()
    while not (directory / f"leave-{place.round}").exists() and not launcher.is_reform_wanted():
        if (directory / f"end-{place.round}").exists():
            sys.exit(0)
        if (directory / f"fail-{place.round}-{member}").exists():
            sys.exit(3)
        time.sleep(0.02)
"""


def lay_out(tmp_path: Path, *, count: int = 3, **changes: Any) -> LocalRun:
    run = LocalRun.lay_out(tmp_path, count=count, **changes)
    payload = Path(run.spec.payload_directory) / "payload"
    payload.unlink()
    payload.mkdir()
    (payload / "__init__.py").touch()
    (payload / "train.py").write_text(RANK)
    for member in range(10):
        (run.directory / f"data-{member}").write_text("one")
    return run


def wait_for(run: LocalRun, round_: int, *members: int) -> None:
    eventually(lambda: all((run.directory / f"placed-{round_}-{member}").exists() for member in members))


def places(log: str, round_: int) -> dict[int, tuple[int, int]]:
    """Return rank and number of ranks by the number with which each rank was started."""
    found = re.findall(rf"^\[(\d)\]<stdout>:place {round_} (\d) (\d)$", log, re.MULTILINE)
    return {int(member): (int(rank), int(size)) for member, rank, size in found}


def test_a_killed_rank_is_left_behind_and_the_others_get_new_places(tmp_path: Path) -> None:
    run = lay_out(tmp_path)
    with run.started() as launcher:
        wait_for(run, 1, 0, 1, 2)
        run.kill(0)
        (run.directory / "leave-1").touch()
        wait_for(run, 2, 1, 2)
        (run.directory / "end-2").touch()
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, log
    assert places(log, 1) == {0: (0, 3), 1: (1, 3), 2: (2, 3)}
    assert places(log, 2) == {1: (0, 2), 2: (1, 2)}
    (told,) = run.reformed()
    assert (told["lost"], told["hosts"]) == (["deeplearning-worker1"], ["deeplearning-worker2", "deeplearning-worker3"])
    assert (told["for"], told["step"], told["steps_lost"], told["seconds"]) == (
        "rank 0 on deeplearning-worker1 was killed", 5, 1, 0.5,
    )  # fmt: skip


def test_a_rank_that_ends_with_a_status_of_its_own_ends_the_run(tmp_path: Path) -> None:
    run = lay_out(tmp_path)
    with run.started() as launcher:
        wait_for(run, 1, 0, 1, 2)
        (run.directory / "fail-1-1").touch()
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert "[launcher] rank 1 on deeplearning-worker2 ended first: 3" in log.splitlines(), log
    assert not run.reformed()


def test_fewer_nodes_than_the_least_end_the_run_with_the_rank_that_was_killed(tmp_path: Path) -> None:
    run = lay_out(tmp_path, min_nodes=3)
    with run.started() as launcher:
        wait_for(run, 1, 0, 1, 2)
        run.kill(2)
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert "[launcher] rank 2 on deeplearning-worker3 ended first: -9" in log.splitlines(), log


def test_a_host_that_is_offered_later_joins_and_one_that_is_withdrawn_leaves(tmp_path: Path) -> None:
    run = lay_out(tmp_path, count=2)
    one, two = run.spec.hosts
    three = make_node(3, address="127.0.0.1")
    with run.started() as launcher:
        wait_for(run, 1, 0, 1)
        run.offer((one, two, three))
        wait_for(run, 2, 0, 1, 2)
        run.offer((two, three))
        wait_for(run, 3, 1, 2)
        (run.directory / "end-3").touch()
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, log
    assert places(log, 2) == {0: (0, 3), 1: (1, 3), 2: (2, 3)}
    assert places(log, 3) == {1: (0, 2), 2: (1, 2)}
    assert "[0]<stdout>:dismissed" in log
    joined, left = run.reformed()
    assert (joined["joined"], joined["lost"]) == (["deeplearning-worker3"], [])
    assert (left["joined"], left["lost"]) == ([], ["deeplearning-worker1"])


def test_a_host_with_other_data_is_not_taken_in_and_the_others_are_not_disturbed(tmp_path: Path) -> None:
    run = lay_out(tmp_path, count=2)
    (run.directory / "data-2").write_text("another")
    three = make_node(3, address="127.0.0.1")
    with run.started() as launcher:
        wait_for(run, 1, 0, 1)
        run.offer((*run.spec.hosts, three))
        eventually(lambda: (run.directory / "started-2").exists() and 2 not in run.pids())
        run.offer((*run.spec.hosts, three), numbers=(1, 2, 4))
        wait_for(run, 2, 0, 1, 3)
        (run.directory / "end-2").touch()
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, log
    assert "[launcher] lost: deeplearning-worker3 reads other data than the others, and is not taken in" in log
    assert places(log, 2) == {0: (0, 3), 1: (1, 3), 3: (2, 3)}
    assert [told["joined"] for told in run.reformed()] == [["deeplearning-worker3"]]
    assert run.told()[0] == {"unjoined": three.instance_id, "for_good": True}
    assert run.told()[1] == {"waits": three.instance_id}


def test_a_host_that_cannot_be_reached_joins_nothing_and_the_others_go_on(tmp_path: Path) -> None:
    run = lay_out(tmp_path, count=2)
    gone: Node = make_node(9, address="127.0.0.1")
    assert gone.name == UNREACHABLE
    with run.started() as launcher:
        wait_for(run, 1, 0, 1)
        run.offer((*run.spec.hosts, gone))
        run.kill(1)
        (run.directory / "leave-1").touch()
        wait_for(run, 2, 0)
        (run.directory / "end-2").touch()
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, log
    assert f"[launcher] lost: the connection to {UNREACHABLE} was lost" in log


def test_a_host_that_is_cut_off_is_left_behind_once_the_others_have_asked(tmp_path: Path) -> None:
    run = lay_out(tmp_path)
    with run.started() as launcher:
        wait_for(run, 1, 0, 1, 2)
        (tmp_path / "cut-deeplearning-worker3").touch()
        run.kill(2, signal.SIGSTOP)
        (run.directory / "leave-1").touch()
        wait_for(run, 2, 0, 1)
        (run.directory / "end-2").touch()
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, log
    assert places(log, 2) == {0: (0, 2), 1: (1, 2)}
    (told,) = run.reformed()
    assert (told["lost"], told["for"]) == (["deeplearning-worker3"], "deeplearning-worker3 no longer answers")


def test_a_rank_that_does_not_leave_its_step_though_its_host_answers_is_waited_for(tmp_path: Path) -> None:
    run = lay_out(tmp_path, count=2)
    with run.started() as launcher:
        wait_for(run, 1, 0, 1)
        run.kill(1, signal.SIGSTOP)
        (run.directory / "leave-1").touch()
        time.sleep(SILENT_S + 2.0)
        assert not (run.directory / "placed-2-0").exists()
        run.kill(1, signal.SIGCONT)
        wait_for(run, 2, 0, 1)
        (run.directory / "end-2").touch()
        log, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, log
    assert run.reformed()[0]["for"] == "a lost connection"
