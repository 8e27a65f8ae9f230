"""Supervised runs: they restart after a fault of the machine, and end after an error of the program."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.launch.launcher_command import Interpreters
from agent.launch.run_hosts import Hosts
from agent.runs import trusted_spec
from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.runs.stored_state import State
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from agent.supervisor import attempt, prepare_hosts, restart
from agent.supervisor import supervisor as supervising
from agent.supervisor.attempt import ON_REQUEST, Attempt
from agent.supervisor.lost_supervisor import LostSupervisor
from agent.supervisor.notification import Notifier
from agent.supervisor.regular_work import Heartbeat
from agent.supervisor.restart import Restarts
from agent.supervisor.supervisor import Supervisor
from agent.supervisor.worker_replacement import LOG
from tests.agent.supervisor.restarting import ONE, SPEC, TWO, FakeHosts
from tests.factories import make_master, make_node, make_nodes, make_spec, nodes_text


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[dict[str, Any], str]]:
    """Return a function that supervises a run on two hosts; each attempt is one of these shell scripts."""
    in_haste = functools.partial(Restarts, nodes_path=str(tmp_path / "nodes"), poll_s=0.01, patience_s=0.05)
    pythons = Interpreters(launcher="python3", ranks="python3", runtime="")
    monkeypatch.setattr(supervising, "Restarts", in_haste)
    monkeypatch.setattr(prepare_hosts, "stage", lambda spec: None)
    monkeypatch.setattr(Attempt, "_prepare", lambda self: (pythons, {}))

    def signal_run(
        self: Hosts, number: int, *args: Any, hosts: Sequence[Node] = (), ranks_only: bool = True, **keys: Any
    ) -> None:
        left = "what is left" if ranks_only else "what is left, launchers too"
        self.log_line(f"signal {number:d} to {left} {' '.join(host.name if host else 'master' for host in hosts)}")

    monkeypatch.setattr(Hosts, "signal_run", signal_run)

    def run(
        *scripts: str,
        silent: set[str] | None = None,
        workers: Sequence[Node] = (ONE, TWO),
        before: LostSupervisor | None = None,
        **changes: Any,
    ) -> tuple[dict[str, Any], str]:
        left = list(scripts)
        (tmp_path / "nodes").write_text(nodes_text((make_master(), *workers)))
        fake = FakeHosts([silent or set()])
        monkeypatch.setattr(Hosts, "everywhere", lambda self, *args: fake.everywhere(*args))
        monkeypatch.setattr(Hosts, "reachable", lambda self, hosts: fake.reachable(hosts))
        monkeypatch.setattr(attempt, "launcher_command", lambda spec, pythons: ["/bin/sh", "-c", left.pop(0)])
        values = {"hosts": (ONE, TWO), "efs_mount": str(tmp_path), "preflight": "skip", "restarts": 3, **changes}
        spec = make_spec(**values)
        runs = Runs(root=tmp_path / "runs")
        directory = runs[spec.run_id]
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.spec.write_text(trusted_spec.accept(spec))
        Path(spec.agent_directory).mkdir(parents=True, exist_ok=True)
        runs.claim(spec.run_id, spec.hosts)
        with directory.log.open("ab", buffering=0) as log:
            state = Supervisor(runs, spec, log, before=before).supervise()
        assert left == []
        if not state.has_ended:
            return {"state": directory.stored_state().to_document()}, directory.log.read_text()
        record = json.loads((directory.path / "record.json").read_text())
        assert record["state"]["state"] == state.state
        return record, directory.log.read_text()

    return run


KILLED = "echo '[launcher] rank 1 exited first: -9'; exit 1"


def test_run_with_a_killed_rank_restarts_by_itself_and_the_record_shows_it(supervised: Any) -> None:
    record, log = supervised(KILLED, "exit 0")
    assert (record["state"]["state"], record["attempts"]) == ("succeeded", 2)
    fault = f"rank 1 on {TWO.name} exited first, with signal 9 (Killed)"
    (again,) = record["course"]["restarts"]
    assert (again["for"], again["hosts"]) == (fault, [ONE.name, TWO.name])
    assert record["preflight"] is None, "the verdict on the hosts of before is gone"
    assert f"restart 1 of 3, because {fault}: from the beginning, because it has no checkpoint, 2 ranks" in log
    assert "--resume" in record["spec"]["command"]


def test_rank_cannot_prevent_a_restart_by_a_directory_in_place_of_the_preflight_report(
    supervised: Any, tmp_path: Path
) -> None:
    script = f"mkdir {tmp_path}/runs/{SPEC.run_id}/preflight.json; {KILLED}"
    record, _ = supervised(script, "exit 0")
    assert (record["state"]["state"], record["attempts"]) == ("succeeded", 2)


@pytest.mark.parametrize(("first", "second", "attempts"), [(0.0, 0.0, 2), (0.0, 60.0, 3), (600.0, 700.0, 2)])
def test_second_lack_of_memory_at_a_similar_point_ends_the_run(
    supervised: Any, monkeypatch: pytest.MonkeyPatch, first: float, second: float, attempts: int
) -> None:
    """Reported as microsoft/pai #1089."""
    times = [first, second, 2000.0]
    real = Attempt.carry_out
    monkeypatch.setattr(Attempt, "carry_out", lambda self: dataclasses.replace(real(self), memory_after_s=times.pop(0)))
    memory = "echo '[launcher] rank 1: out of memory: it used 9 MiB'; exit 1"
    record, log = supervised(*[memory] * attempts, restarts=2)
    fault = f"rank 1 on {TWO.name} ran out of memory: it used 9 MiB"
    assert (record["state"]["state"], record["attempts"]) == ("failed", attempts)
    assert record["state"]["reason"].startswith(fault)
    assert ("at a similar point, so the run is not restarted" in record["state"]["reason"]) == (attempts == 2)
    assert record["course"]["restarts"][0]["out_of_memory_after_s"] == first
    assert f"restart 1 of 2, because {fault}" in log


def test_leftover_ranks_are_killed_on_old_and_new_hosts(supervised: Any) -> None:
    _, log = supervised(KILLED, "exit 0")
    first, second = log.split("[supervisor] $ ")[1:]
    assert first.count("signal 9 to what is left") == 2
    assert "signal 9" not in second


def test_excluded_host_keeps_no_processes_of_run(supervised: Any) -> None:
    record, log = supervised("exit 1", "exit 0", silent={TWO.name}, workers=make_nodes(3))
    assert record["state"]["state"] == "succeeded"
    assert record["state"]["hosts"] == [ONE.name, make_node(3).name]
    assert log.rstrip().endswith(f"signal 9 to what is left {TWO.name}")
    assert f"signal 9 to what is left master {ONE.name}\n" in log, "a host that is silent is not waited for"


def test_replacement_of_a_host_is_in_the_log_and_in_the_record(supervised: Any, home: Path) -> None:
    made = {"node": TWO.name, "instance_id": TWO.instance_id, "reason": "it is silent", "trouble": ""}
    log_of_replacements = home / LOG
    log_of_replacements.parent.mkdir()
    text = json.dumps({"time": 0, **made}).replace('"time": 0', "\"time\": '$(date +%s.%N)'")
    foreign = text.replace(TWO.instance_id, "i-0000000a")
    scripts = (f"echo '{text}' >{log_of_replacements}; echo '{foreign}' >>{log_of_replacements}; exit 1", "exit 0")
    record, log = supervised(*scripts, silent={TWO.name}, workers=make_nodes(3))
    assert record["state"]["state"] == "succeeded"
    assert [{**each, "time": 0} for each in record["course"]["replaced"]] == [{"time": 0, **made}]
    assert log.count(f"{TWO.name} ({TWO.instance_id}) is replaced: it is silent") == 1


def test_run_with_stuck_rank_restarts_and_after_the_last_restart_the_reason_names_it(
    supervised: Any, tmp_path: Path
) -> None:
    directory = RunDirectory(path=Path(make_spec(efs_mount=str(tmp_path)).run_directory))
    stuck = [
        f"echo 1 > {directory.stall_report(attempt, TWO.name)}; echo '[launcher] rank 0 exited first: 1'; exit 1"
        for attempt in (1, 2)
    ]
    record, _ = supervised(*stuck, restarts=1, stall_after_s=600)
    assert record["attempts"] == 2
    fault = f"rank 1 on {TWO.name} was stuck: no step, output or CPU time for 10 min"
    assert [again["for"] for again in record["course"]["restarts"]] == [fault]
    assert record["state"]["reason"] == f"{fault} (after 1 restart)"


def test_program_error_causes_no_restart(supervised: Any) -> None:
    record, log = supervised("echo '[launcher] rank 1 exited first: 1'; exit 1")
    assert (record["state"]["state"], "restart" in log) == ("failed", False)
    assert record["state"]["reason"] == f"rank 1 on {TWO.name} exited first, with status 1"
    assert "restarts" not in record["course"] and record["attempts"] == 1


def test_fault_after_last_restart_fails_the_run(supervised: Any) -> None:
    record, _ = supervised(KILLED, KILLED, restarts=1)
    assert record["state"]["reason"] == f"rank 1 on {TWO.name} exited first, with signal 9 (Killed) (after 1 restart)"
    assert len(record["course"]["restarts"]) == 1


def test_run_fails_with_first_reason_if_no_node_returns(supervised: Any) -> None:
    record, log = supervised("exit 1", silent={TWO.name})
    assert record["state"]["state"] == "failed"
    assert f"because {TWO.name} no longer responds" in log
    assert "the run is not restarted" in log
    assert record["attempts"] == 1


def test_stop_while_waiting_for_nodes_stops_the_run(supervised: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: Restarts, title: str) -> None:
        assert not self.is_stopped()
        supervisors[0].directory.stop_request.write_text("{}")
        supervisors[0].request_stop()
        assert self.is_stopped()

    def supervise(self: Supervisor) -> State:
        supervisors.append(self)
        return begin(self)

    supervisors: list[Supervisor] = []
    monkeypatch.setattr(restart.Restarts, "claim_hosts", stopped)
    begin = Supervisor.supervise
    monkeypatch.setattr(Supervisor, "supervise", supervise)
    record, _ = supervised(KILLED)
    assert (record["state"]["state"], record["state"]["reason"]) == ("stopped", "stopped on request")


def lost(*faults: str, **changes: Any) -> LostSupervisor:
    """Return a supervisor that was lost after restarts for these faults."""
    restarts = [{"time": 2.0, "for": fault, "waited_s": 1.0, "hosts": [ONE.name]} for fault in faults]
    course = {"archive": "", "times": {"started": 1.5}, "restarts": [*restarts, {"for": "it counts already"}]}
    values = {"fault": "its supervisor was lost", "started": 1.25, "course": course, "restarts": restarts, "wanted": 2}
    values["reason"] = "restart 1 of 3, because its supervisor was lost"
    return LostSupervisor(**{"left": {}, **values, **changes})


def test_next_supervisor_restarts_run_and_continues_record(supervised: Any) -> None:
    record, log = supervised("exit 0", before=lost("a rank was killed"))
    assert (record["state"]["state"], record["state"]["started"]) == ("succeeded", 1.25)
    assert [each["for"] for each in record["course"]["restarts"]] == ["a rank was killed", "its supervisor was lost"]
    assert record["course"]["times"]["started"] == 1.5
    assert "restart 2 of 3, because its supervisor was lost: from the beginning" in log
    first, _ = log.split("[supervisor] $ ")
    signals = [line.partition("signal ")[2] for line in first.splitlines() if "signal " in line]
    assert signals[:2] == ["15 to what is left ", "9 to what is left, launchers too "], "ranks may write a checkpoint"


def test_restart_limit_includes_both_kinds_of_faults(supervised: Any) -> None:
    record, log = supervised(KILLED, before=lost("a rank was killed"), restarts=2)
    assert record["state"]["reason"] == f"rank 1 on {TWO.name} exited first, with signal 9 (Killed) (after 2 restarts)"
    record, log = supervised(KILLED, "exit 0", before=lost("a rank was killed"), restarts=3, run_id="two")
    assert (record["state"]["state"], len(record["course"]["restarts"])) == ("succeeded", 3)
    assert log.count("signal 15") == 1, "what this supervisor has launched has ended"


@pytest.mark.parametrize("is_recipe", [True, False])
def test_ranks_that_finished_without_supervisor_have_succeeded(
    supervised: Any, tmp_path: Path, is_recipe: bool
) -> None:
    directory = tmp_path / "runs" / SPEC.run_id
    directory.mkdir(parents=True)
    (directory / "result.json").write_text("{}")
    if is_recipe:
        record, log = supervised(before=lost())
        assert (record["state"]["state"], record["attempts"], "restart 1" in log) == ("succeeded", 1, False)
    else:
        record, log = supervised("exit 0", before=lost(), command=("-m", "payload.bench.ranks"))
        assert (record["state"]["state"], record["attempts"], "restart 1" in log) == ("succeeded", 2, True)


def test_next_supervisor_uses_the_original_number_of_nodes_and_clears_the_others(
    supervised: Any,
) -> None:
    four = make_node(4)
    record, log = supervised("exit 0", before=lost("a", wanted=3, left={four.name: four}), workers=make_nodes(3))
    assert record["state"]["hosts"] == [node.name for node in make_nodes(3)]
    assert log.rstrip().endswith(f"signal 9 to what is left {four.name}")


def test_run_fails_with_supervisor_died_if_no_node_answers(supervised: Any) -> None:
    record, _ = supervised(before=lost(), silent={ONE.name, TWO.name})
    assert (record["state"]["state"], record["state"]["reason"]) == (
        "failed", "supervisor died"
    )  # fmt: skip


@pytest.mark.parametrize(("stopped", "restarts"), [(False, 3), (True, 3), (False, 0)])
def test_run_is_left_to_the_next_supervisor_unless_it_was_stopping(
    supervised: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool, restarts: int
) -> None:
    runs = Runs(root=tmp_path / "runs")

    def poll(self: Heartbeat, spec: RunSpec) -> None:
        if stopped:
            self.directory.stop_request.write_text('{"grace_s": 0}')
        self.stop.ask(ON_REQUEST)

    told: list[str] = []
    monkeypatch.setattr(Heartbeat, "poll", poll)
    monkeypatch.setattr(Notifier, "finish", lambda self: told.append("all"))
    record, log = supervised("trap 'exit 1' TERM; sleep 1 & wait", restarts=restarts)
    assert told == ["all"], "what is being told is waited for"
    if stopped or not restarts:
        assert (record["state"]["state"], record["state"]["reason"]) == ("stopped", "stopped on request")
        assert runs.held() == []
    else:
        assert record["state"]["state"] == "running"
        assert "because the master shut down; the run continues" in record["state"]["reason"]
        assert [claim.names for claim in runs.held()] == [(ONE.name, TWO.name)]
        assert log.rstrip().endswith("the run continues"), "nothing is cleaned up"
