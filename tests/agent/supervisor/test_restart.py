"""Which failures are faults of the machine, and the search for nodes to continue a run on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.runs.node_claims import Runs
from agent.runs.run_directory import RunDirectory
from agent.spec.nodes import LEAVING, Node
from agent.spec.run import RunSpec
from agent.supervisor import failure
from agent.supervisor.free_nodes import choose_answering
from agent.supervisor.restart import Restarts, machine_fault, uptimes
from tests.agent.supervisor.restarting import ENDED, ONE, SPEC, TWO, FakeHosts, answer, report_stuck
from tests.factories import make_master, make_node, make_nodes, make_spec, nodes_text

CLOSED = f"Connection to {TWO.name} closed by remote host.\r\n"
LOST = f"[supervisor] $ launch\n{CLOSED}[launcher] {TWO.name} ended: 255\n"
KILLED_ALL = (
    f"all processes of the ranks on {TWO.name} were killed, including their SSH connection, but the node is still "
    "running; a program does this with `kill -1` or kill(-1, ...), so remove such a call"
)
UP = {ONE.name: 5000.0, TWO.name: 5000.0}
BROKEN = "[1]<stderr>:Timeout, server 10.0.64.6 not responding.\r\n"
NETWORK = "the network between nodes failed: ranks could not reach"
GLOO = "[0]<stderr>:what():  [/h/gloo/transport/tcp/pair.cc:563] Read error [{}]:19855: Connection timed out\n"
OPEN_MPI = "[ip][[1,1],0][btl_tcp_frag.c:242:mca_btl_tcp_frag_recv] readv failed: Connection timed out (110)\n"
NCCL = "node:1:2 [0] include/socket.h:361 NCCL WARN Call to recv from 10.0.64.6<51234> failed : Connection timed out\n"
MEMORY = "[launcher] rank 1: out of memory: it used 9 MiB\n"
FROZEN = (
    "[supervisor] $ launch\n[0]<stderr>:Horovod background loop uncaught exception: "
    "[transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for recv operation to complete\n"
)


@pytest.mark.parametrize(
    ("log", "up", "fault"),
    [
        (ENDED.format(1), UP, ""),
        (ENDED.format(-6), UP, ""),
        (ENDED.format(255), UP, ""),
        (ENDED.format(9), UP, ""),  # what sys.exit(9) gives; SIGKILL has a sign, or 128 added by a shell
        (FROZEN + FROZEN.partition("\n")[2].replace("[0]", "[1]"), UP, ""),  # mismatched collectives
        ("", UP, ""),
        (ENDED.format(-9), UP, f"rank 1 on {TWO.name} exited first, with signal 9 (Killed)"),
        (ENDED.format(137), UP, f"rank 1 on {TWO.name} exited first, with status 137 (Killed)"),
        (
            FROZEN,
            UP,
            f"rank 1 on {TWO.name} printed no error when a collective timed out after 10 s, but rank 0 did: "
            "the rank hung, or its node was cut off",
        ),
        (ENDED.format(1), {ONE.name: 5000.0}, f"{TWO.name} no longer responds"),
        (ENDED.format(1), {}, f"{ONE.name}, {TWO.name} no longer respond"),
        (ENDED.format(255), {**UP, TWO.name: 30.0}, f"{TWO.name} rebooted"),
        # The network failed for a minute: the host answers again.
        (ENDED.format(255) + BROKEN, UP, f"the connection to {TWO.name} was lost"),
        (ENDED.format(1) + BROKEN, UP, ""),
        # The network between nodes failed for longer than TCP retries.
        (ENDED.format(1) + GLOO.format(TWO.address), UP, f"{NETWORK} {TWO.name}"),
        (ENDED.format(-6) + GLOO.format("10.9.9.9"), UP, f"{NETWORK} each other"),
        (ENDED.format(1) + OPEN_MPI, UP, f"{NETWORK} each other"),
        (ENDED.format(1) + NCCL, UP, f"{NETWORK} each other"),
        (ENDED.format(1) + "OSError: [Errno 110] Connection timed out\n", UP, ""),  # from the program itself
        # A program killed all processes of its user, sshd's included (`kill -1`).
        (ENDED.format(255) + CLOSED, UP, KILLED_ALL),
        (f"[supervisor] $ launch\n{CLOSED}[launcher] {TWO.name} ended: 255\n", UP, KILLED_ALL),
        (
            f"[supervisor] $ launch\n{CLOSED}[launcher] {TWO.name} ended: 255\n",
            {**UP, TWO.name: 30.0},
            f"{TWO.name} rebooted",
        ),
        (f"[supervisor] $ launch\n[launcher] {TWO.name} ended: 255\n", UP, f"the connection to {TWO.name} was lost"),
        (f"[supervisor] $ launch\n[launcher] {TWO.name} ended: 1\n", UP, ""),
        (ENDED.format(-9) + MEMORY, UP, f"rank 1 on {TWO.name} ran out of memory: it used 9 MiB"),
        (ENDED.format(1) + f"[1]<stderr>:{MEMORY}", UP, f"rank 1 on {TWO.name} ran out of memory: it used 9 MiB"),
        # The output of an earlier attempt is not a fault of this one.
        (ENDED.format(-9) + "\n" + ENDED.format(1), UP, ""),
    ],
)
def test_lost_nodes_and_killed_or_silent_ranks_are_machine_faults(log: str, up: dict[str, float], fault: str) -> None:
    assert machine_fault(SPEC, "before\n" + log, up, ran_s=100.0) == fault


def test_leaving_node_is_a_fault_regardless_of_log(tmp_path: Path) -> None:
    (tmp_path / LEAVING).mkdir(parents=True)
    (tmp_path / LEAVING / TWO.instance_id).write_text('spot interruption: {"action": "terminate"}')
    spec = make_spec(hosts=(ONE, TWO), efs_mount=str(tmp_path))
    assert machine_fault(spec, ENDED.format(1), UP, 100.0) == f"{TWO.name} is leaving the cluster (spot interruption)"


def test_only_hosts_that_answer_have_an_uptime() -> None:
    answers = {
        "a": answer(), "b": answer("Authorised use only\n99.5 12.0\n"), "c": answer("no route", status=255),
        "d": answer(""), "e": answer("x y\n"),
    }  # fmt: skip
    assert uptimes(answers) == {"a": 812.45, "b": 99.5}


def test_run_keeps_reachable_hosts_and_adds_others_of_same_kind() -> None:
    three, other = make_node(3), make_node(4, kind="aarch64-py3.12")
    nodes: tuple[Node, ...] = (make_master(), ONE, TWO, three, other)
    ids = {node.instance_id for node in nodes}

    def names(answering: set[str], least: int = 2, spec: RunSpec = SPEC, most: int = 2) -> list[str] | None:
        found = choose_answering(spec, nodes, answering, least, most)
        return [node.name for node in found] if found else None

    assert names(ids) == [ONE.name, TWO.name]
    assert names(ids - {ONE.instance_id}) == [TWO.name, three.name]
    assert names(ids - {ONE.instance_id, three.instance_id}) is None
    assert names(ids - {ONE.instance_id, three.instance_id}, least=1) == [TWO.name]
    assert names(set(), least=1) is None
    assert names(ids, most=3) == [ONE.name, TWO.name, three.name], "back to as many as it began with"
    # Hosts with two compute capabilities share an environment.
    mixed = make_spec(hosts=(make_node(1, kind="x86_64-sm75"), make_node(2, kind="x86_64-sm86")))
    nodes = (*mixed.hosts, make_node(3, kind="x86_64-sm86"))
    assert names(ids, spec=mixed) == [ONE.name, TWO.name]
    assert names(ids - {TWO.instance_id}, spec=mixed) == [ONE.name, three.name]


def test_stuck_rank_is_the_fault_and_not_the_one_that_ended_first(tmp_path: Path) -> None:
    spec = make_spec(hosts=(ONE, TWO), efs_mount=str(tmp_path), stall_after_s=600)
    report_stuck(spec, TWO, "1")
    fault = f"rank 1 on {TWO.name} was stuck: no step, output or CPU time for 10 min"
    innocent = ENDED.format(1).replace("rank 1", "rank 0")
    for log in (innocent, ENDED.format(-9), FROZEN, ""):
        assert machine_fault(spec, log, UP, 100.0) == fault
        assert failure.reason(spec, 1, log) == fault
    assert machine_fault(spec, innocent, {ONE.name: 5000.0}, 100.0) == f"{TWO.name} no longer responds"
    Path(spec.run_directory, "spec-1.json").touch()  # The report belongs to the previous attempt.
    assert machine_fault(spec, innocent, UP, 100.0) == ""


def test_stuck_ranks_are_named_with_their_node_and_junk_is_ignored(tmp_path: Path) -> None:
    hosts = make_nodes(3, slots=2)
    spec = make_spec(hosts=hosts, efs_mount=str(tmp_path), stall_after_s=90)
    report_stuck(spec, hosts[2], "5 many")
    assert failure.stuck_ranks(spec) == ""
    report_stuck(spec, hosts[0], "1 0 -3")
    report_stuck(spec, hosts[1], "3 0 77")
    RunDirectory(path=Path(spec.run_directory)).stall_report(1, hosts[2].name).unlink()
    os.mkfifo(RunDirectory(path=Path(spec.run_directory)).stall_report(1, hosts[2].name))
    assert failure.stuck_ranks(spec) == (
        f"ranks 0-1 on {ONE.name} and rank 3 on {TWO.name} were stuck: no step, output or CPU time for 1.5 min"
    )


@pytest.fixture
def search(tmp_path: Path) -> Callable[..., tuple[RunSpec | None, list[str], list[str]]]:
    """Return a search among a master and three workers. Each look has its own set of silent hosts."""
    path = tmp_path / "nodes"
    path.write_text(nodes_text((make_master(), *make_nodes(3))))
    (tmp_path / "runs").mkdir()
    runs = Runs(root=tmp_path / "runs")

    def run(
        *silent: set[str], spec: RunSpec = SPEC, taken: Sequence[Node] = (), **changes: Any
    ) -> tuple[RunSpec | None, list[str], list[str]]:
        reasons: list[str] = []
        lines: list[str] = []
        for run_id, hosts in ((spec.run_id, spec.hosts), *([("other", taken)] if taken else [])):
            runs.release(run_id)
            runs.claim(run_id, hosts)
        values: dict[str, Any] = {
            "is_stopped": lambda: False, "set_reason": reasons.append, "log_line": lines.append, "poll_s": 0.001,
            "patience_s": 0.1, "fewer_after_s": 0.05, "nodes_path": str(path), "hosts": FakeHosts(silent),
            "silent": (), "wanted": len(spec.hosts), "runs": runs,
        }  # fmt: skip
        search = Restarts(spec=spec, **{**values, **changes})
        return search.claim_hosts("restart 1 of 3, because a fault"), reasons, lines

    return run


def test_restart_waits_for_as_many_nodes_and_reports_it(search: Any) -> None:
    every = {node.name for node in make_nodes(3)}
    spec, reasons, _ = search(every, every - {ONE.name}, {TWO.name})
    assert [host.name for host in spec.hosts] == [ONE.name, make_node(3).name]
    assert spec.command == (*SPEC.command, "--resume")
    assert (spec.interface, spec.network) == (make_master().interface, "10.0.0.0/23")
    assert reasons == [
        "restart 1 of 3, because a fault: waiting for nodes, 0 of 2 nodes respond",
        "restart 1 of 3, because a fault: waiting for nodes, 1 of 2 nodes respond",
    ]


def test_leaving_nodes_do_not_count(search: Any, tmp_path: Path) -> None:
    (tmp_path / LEAVING).mkdir(parents=True)
    (tmp_path / LEAVING / ONE.instance_id).touch()
    spec, *_ = search(set(), spec=make_spec(hosts=(ONE, TWO), restarts=1, efs_mount=str(tmp_path)))
    assert [host.name for host in spec.hosts] == [TWO.name, make_node(3).name]


def test_nodes_of_another_run_do_not_count_and_chosen_nodes_are_claimed(search: Any, tmp_path: Path) -> None:
    runs = Runs(root=tmp_path / "runs")
    spec, reasons, _ = search({TWO.name}, taken=[make_node(3)])
    assert spec is None
    assert reasons[-1] == "restart 1 of 3, because a fault: waiting for nodes, 1 of 2 nodes respond"
    assert [claim.names for claim in runs.held()] == [(ONE.name, TWO.name), (make_node(3).name,)]
    runs.release("other")
    spec, *_ = search({TWO.name})
    assert [claim.names for claim in runs.held()] == [(ONE.name, make_node(3).name)]
    assert [host.name for host in spec.hosts] == [ONE.name, make_node(3).name]


def test_wait_for_nodes_ends_at_timeout_or_stop(search: Any) -> None:
    spec, _, lines = search({ONE.name, TWO.name})
    few = "the run is not restarted: fewer than 2 nodes responded within 0 s; to continue: `fab resume "
    assert (spec, lines[-1]) == (None, f"{few}{SPEC.run_id}`")
    began = time.monotonic()
    assert search({ONE.name, TWO.name}, is_stopped=lambda: True, patience_s=60.0)[0] is None
    assert time.monotonic() - began < 30


def test_recently_unreachable_host_is_tried_only_if_the_others_do_not_suffice(search: Any) -> None:
    hosts = FakeHosts([set()])
    spec, *_ = search(hosts=hosts, silent={ONE.instance_id})
    assert [host.name for host in spec.hosts] == [TWO.name, make_node(3).name]
    assert hosts.asked == [[TWO.name, make_node(3).name]]
    hosts = FakeHosts([{TWO.name}])
    spec, *_ = search(hosts=hosts, silent={ONE.instance_id})
    assert [host.name for host in spec.hosts] == [ONE.name, make_node(3).name]
    assert len(hosts.asked) == 2


def test_fewer_nodes_are_used_after_a_while_if_allowed(search: Any) -> None:
    spec = make_spec(hosts=make_nodes(3), restarts=3, min_nodes=2)
    began = time.monotonic()
    found, *_ = search({TWO.name}, spec=spec, fewer_after_s=0.2, patience_s=60.0)
    assert [host.name for host in found.hosts] == [ONE.name, make_node(3).name]
    assert time.monotonic() - began >= 0.2
    assert search({ONE.name, TWO.name}, spec=spec)[0] is None
    shrunken = make_spec(hosts=make_nodes(2), restarts=3, min_nodes=2)
    again, *_ = search(set(), spec=shrunken, wanted=3)
    assert len(again.hosts) == 3, "a later restart takes as many as the run began with"


class Unreplaced:
    """Replacements of a run's hosts: why none arrives, and when the latest one began."""

    def __init__(self, obstacle: str = "", latest: float = 0.0) -> None:
        self.obstacle, self.latest = lambda: obstacle, lambda: latest


def test_without_capacity_fewer_nodes_are_used_after_a_while(search: Any) -> None:
    spec = make_spec(hosts=make_nodes(3), restarts=3)
    none, some = Unreplaced("no capacity"), Unreplaced()
    began = time.monotonic()
    found, _, lines = search({TWO.name}, spec=spec, unreplaced_after_s=0.2, patience_s=60.0, replacements=none)
    assert [host.name for host in found.hosts] == [ONE.name, make_node(3).name]
    assert time.monotonic() - began >= 0.2
    assert lines[-1] == "the run may continue on fewer nodes, because its workers are not replaced: no capacity"
    assert search({TWO.name}, spec=spec, unreplaced_after_s=0.01, replacements=some)[0] is None


def test_min_nodes_forbids_fewer_nodes_without_capacity(search: Any) -> None:
    spec = make_spec(hosts=make_nodes(3), restarts=3, min_nodes=3)
    assert search({TWO.name}, spec=spec, unreplaced_after_s=0.01, replacements=Unreplaced("no capacity"))[0] is None


def test_starting_replacement_has_as_much_time_as_lost_node(search: Any) -> None:
    began = time.monotonic()
    late = Unreplaced(latest=time.time() + 0.3)
    assert search({ONE.name, TWO.name}, replacements=late)[0] is None
    assert time.monotonic() - began >= 0.4


def test_restart_keeps_waiting_without_list_of_nodes(search: Any) -> None:
    spec, _, lines = search(set(), nodes_path="/nowhere/nodes")
    assert (spec, "cannot read the list of nodes" in lines[1]) == (None, True)
