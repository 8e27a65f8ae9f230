from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from chaos.stage import Stage, carried_out, done, started_host
from localcloud.chaos.attempt import NoTargetError
from localcloud.chaos.processes import processes_of, ranks_of
from localcloud.chaos.schedule import KINDS
from localcloud.errors import LocalCloudError, UnknownInstanceError
from waiting import eventually


@pytest.mark.parametrize("kind", KINDS)
def test_without_hosts_only_api_faults_are_injected(tmp_path: Path, kind: str) -> None:
    stage = Stage(tmp_path)
    if kind == "api-errors":
        found = carried_out(stage, kind)
        assert found.what == "made 50% of the API calls fail" and found.undo
        found.undo()
        assert stage.asked == [{"do": "fail", "share": "0.5", "seconds": "5.0"}, {"do": "fail"}]
        return
    for patterns in ({}, {"supervisor": "sleep", "flip": "*"}):
        with pytest.raises(NoTargetError):
            carried_out(stage, kind, **patterns)


def test_place_selects_a_host_and_api_faults_use_the_api(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1, 1, 1, spot=True)
    assert done(stage, "terminate", 0.0) == "terminated w1 (i-1)"
    assert done(stage, "reboot", 0.999) == "rebooted w3 (i-3)"
    assert done(stage, "spot-notice", 0.5) == "sent w2 (i-2) a spot interruption notice: it is terminated in 120 s"
    cut = carried_out(stage, "cut", 0.4)
    assert cut.what == "cut the network of w2 (i-2)" and cut.undo
    cut.undo()
    assert stage.asked == [
        ("terminate_instances", "i-1"),
        ("reboot_instances", "i-3"),
        {"do": "interrupt", "instance": "i-2", "notice_s": "120.0"},
        {"do": "cut", "instance": "i-2"},
        {"do": "mend", "instance": "i-2"},
    ]
    assert carried_out(stage, "spot-notice", notice_s=60.0).what.endswith("it is terminated in 60 s")
    assert stage.asked[-1] == {"do": "interrupt", "instance": "i-1", "notice_s": "60.0"}
    with pytest.raises(NoTargetError, match="there is no spot instance"):
        done(Stage(tmp_path, 1), "spot-notice")


def test_active_fault_is_not_repeated_on_its_target(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1, 1)
    assert carried_out(stage, "cut", 0.0, "i-1").target == "i-2"
    with pytest.raises(NoTargetError, match="there is no running host without an active fault of this kind"):
        carried_out(stage, "cut", 0.0, "i-1", "i-2")
    for kind, target in (("api-errors", "API"), ("fill-disk", "disk")):
        with pytest.raises(NoTargetError, match=f"a fault of this kind is still active on the {target}"):
            carried_out(stage, kind, 0.0, target)


def test_undo_of_cut_fails_unless_host_is_gone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 1)
    cut = carried_out(stage, "cut")
    assert cut.undo

    def gone(message: dict[str, str]) -> dict[str, Any]:
        raise UnknownInstanceError("i-1", [])

    def busy(message: dict[str, str]) -> dict[str, Any]:
        raise LocalCloudError("the daemon is busy")

    stage.ask = gone  # type: ignore[method-assign]
    cut.undo()
    stage.ask = busy  # type: ignore[method-assign]
    with pytest.raises(LocalCloudError, match="busy"):
        cut.undo()


def test_just_exited_host_causes_no_traceback(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 2**22)
    with pytest.raises(NoTargetError, match="the chosen process has already exited"):
        done(stage, "kill-host")
    for kind in ("drop", "slow"):
        with pytest.raises(NoTargetError, match=r"w1 \(i-1\) has already exited"):
            done(stage, kind)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.root
def test_smaller_half_of_hosts_is_killed_at_the_same_time(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(started_host()) for _ in range(3)]
        stage = Stage(tmp_path, *hosts)
        with pytest.raises(NoTargetError, match="fewer than two of the hosts"):
            carried_out(stage, "kill-half", 0.0, "i-1", "i-2")
        assert done(stage, "kill-half", 0.9) == "killed 1 of 3 hosts: w3 (i-3)"
        eventually(lambda: processes_of(hosts[2]) == [])
        hosts.append(stack.enter_context(started_host()))
        four = Stage(tmp_path, hosts[0], hosts[1], hosts[3], hosts[3])
        assert done(four, "kill-half", 0.99) == "killed 2 of 4 hosts: w4 (i-4), w1 (i-1)"
        eventually(lambda: [len(processes_of(host)) for host in (hosts[0], hosts[3])] == [0, 0])
        assert processes_of(hosts[1])


@pytest.mark.root
def test_host_of_first_rank_is_killed_and_none_without_ranks(tmp_path: Path) -> None:
    with started_host() as host, started_host() as other:
        for rank in ranks_of(processes_of(host)):
            if rank.rank == 0:
                os.kill(rank.pid, signal.SIGKILL)
        eventually(lambda: [rank.rank for rank in ranks_of(processes_of(host))] == [1])
        stage = Stage(tmp_path, host, other)
        assert done(stage, "kill-first-host") == "killed w2 (i-2), the host of rank 0"
        eventually(lambda: processes_of(other) == [])
        assert done(Stage(tmp_path, host), "kill-first-host") == "killed w1 (i-1), the host of rank 1"
        eventually(lambda: processes_of(host) == [])
        with pytest.raises(NoTargetError, match="there is no running rank"):
            done(Stage(tmp_path, host), "kill-first-host")


@pytest.mark.root
def test_rank_is_frozen_resumed_and_killed_without_affecting_another(tmp_path: Path) -> None:
    with started_host() as host:
        stage = Stage(tmp_path, host)
        first, second = ranks_of(processes_of(host))
        frozen = carried_out(stage, "freeze-rank", 0.6)
        assert frozen.what == "froze rank 1 on w1 (i-1)" and frozen.undo
        eventually(lambda: state_of(second.pid) == "T")
        assert state_of(first.pid) == "S"
        other = carried_out(stage, "freeze-rank", 0.6, frozen.target)
        assert other.what == "froze rank 0 on w1 (i-1)" and other.undo
        frozen.undo()
        other.undo()
        eventually(lambda: state_of(first.pid) == state_of(second.pid) == "S")
        assert done(stage, "kill-rank", 0.1) == "killed rank 0 on w1 (i-1)"
        eventually(lambda: [rank.rank for rank in ranks_of(processes_of(host))] == [1])
        frozen = carried_out(stage, "freeze-rank")
        assert done(stage, "kill-supervisor", supervisor="sleep 602") == "killed 'sleep 602' on w1 (i-1)"
        eventually(lambda: not ranks_of(processes_of(host)))
        assert frozen.undo
        frozen.undo()
        with pytest.raises(NoTargetError, match="there is no process that matches --supervisor 'sleep 602'"):
            done(stage, "kill-supervisor", supervisor="sleep 602")
        assert done(stage, "kill-host") == "killed w1 (i-1)"
        eventually(lambda: processes_of(host) == [])
