"""Lost workers: when one is replaced, and when it must not be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.remote.ssh import Completed
from agent.runs.node_claims import Runs
from agent.spec.nodes import LEAVING, Node
from agent.spec.run_limits import Replacements
from agent.supervisor.lost_workers import BOOT_S, CALL_S, LOST_S, PERIOD_S, LostWorkers
from agent.supervisor.worker_replacement import ReplacementLog
from tests.agent.lost_runs import lose
from tests.factories import make_master, make_nodes, nodes_text

HOSTS = make_nodes(4)


class Cluster:
    """Four workers, their group and a clock. Tests change which workers answer and what AWS returns."""

    def __init__(self, root: Path, hosts: Sequence[Node] = HOSTS, **settings: Any) -> None:
        self.root, self.hosts, self.now = root, hosts, 1000.0
        self.listed = list(hosts)
        self.silent: set[str] = set()
        """Names of nodes that do not answer over SSH."""
        self.output: dict[str, str] = {}
        self.members = {host.instance_id: ["InService", "Healthy"] for host in hosts}
        self.marked: list[str] = []
        self.error = ""
        self.lines: list[str] = []
        self.runs = Runs(root=root / "runs")
        values = {"group": "workers", "region": "us-east-1", "max_per_hour": 4, **settings}
        lose(self.runs, hosts=tuple(hosts), replacements=Replacements(**values))
        assert self.runs.take_over("one")
        self.log = ReplacementLog(root / "log")
        self.workers = self.search()

    def search(self) -> LostWorkers:
        """Return a search that begins now."""
        path = str(self.root / "nodes")
        return LostWorkers(
            self.runs, self.lines.append, run=self.run, nodes_path=path, log=self.log, clock=lambda: self.now
        )

    def run(self, command: Sequence[str], timeout_s: float) -> Completed:
        """Answer for SSH and AWS."""
        if "autoscaling" not in command:
            name = next(host.name for host in self.hosts if host.name in command)
            return Completed(status=255 if name in self.silent else 0, output=self.output.get(name, ""))
        if self.error:
            return Completed(status=254, output=self.error)
        if "set-instance-health" in command:
            self.marked.append(command[command.index("--instance-id") + 1])
            self.members[self.marked[-1]] = ["Terminating", "Unhealthy"]
            return Completed(status=0, output="")
        assert "describe-auto-scaling-groups" in command
        instances = [[id, *state] for id, state in self.members.items()]
        return Completed(status=0, output=json.dumps([instances, []]))

    def cut(self, *hosts: Node) -> None:
        """Cut hosts off: they do not answer, and after a look the nodes file no longer lists them."""
        self.silent |= {host.name for host in hosts}
        self.pass_time(PERIOD_S)
        self.listed = [host for host in self.listed if host not in hosts]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with a look every PERIOD_S seconds."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + PERIOD_S)
            (self.root / "nodes").write_text(nodes_text([make_master(), *self.listed]))
            self.workers.check_and_replace()

    @property
    def troubles(self) -> list[str]:
        """Return why workers were not replaced."""
        return [each.trouble for each in self.log.read() if each.trouble]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_worker_that_is_silent_for_three_minutes_is_replaced_once_with_the_reason(cluster: Cluster) -> None:
    cluster.pass_time(600.0)
    cluster.cut(HOSTS[3])
    cluster.pass_time(LOST_S - 2 * PERIOD_S)
    assert cluster.marked == []
    cluster.pass_time(2 * PERIOD_S)
    assert cluster.marked == [HOSTS[3].instance_id]
    cluster.pass_time(3600.0)
    assert cluster.marked == [HOSTS[3].instance_id]
    (made,) = cluster.log.read()
    assert (made.node, made.reason, made.trouble) == (HOSTS[3].name, "it has not answered for 3 min", "")
    assert cluster.lines == [f"{HOSTS[3].name} ({HOSTS[3].instance_id}) is replaced: it has not answered for 3 min"]


def test_worker_that_answers_again_is_kept(cluster: Cluster) -> None:
    cluster.pass_time(60.0)
    cluster.cut(HOSTS[3])
    cluster.pass_time(LOST_S - 3 * PERIOD_S)
    cluster.silent, cluster.listed = set(), list(HOSTS)
    cluster.pass_time(3600.0)
    assert cluster.marked == []


def test_worker_that_only_ssh_does_not_reach_is_replaced_too(cluster: Cluster) -> None:
    cluster.pass_time(60.0)
    cluster.silent = {HOSTS[0].name}
    cluster.pass_time(LOST_S + PERIOD_S)
    assert cluster.marked == [HOSTS[0].instance_id]


def test_host_of_a_live_run_that_was_lost_before_this_scheduler_began_is_replaced(cluster: Cluster) -> None:
    cluster.listed = list(HOSTS[:3])
    cluster.pass_time(LOST_S + 2 * PERIOD_S)
    assert cluster.marked == [HOSTS[3].instance_id]


def test_node_that_reboots_has_longer(cluster: Cluster) -> None:
    cluster.pass_time(60.0)
    cluster.listed = list(HOSTS[:3])  # It removed itself from the list, and answered until then.
    cluster.pass_time(BOOT_S - 2 * PERIOD_S)
    assert cluster.marked == []
    cluster.pass_time(3 * PERIOD_S)
    assert cluster.marked == [HOSTS[3].instance_id]


def test_leaving_reserved_or_ungrouped_node_is_not_replaced(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pass_time(60.0)
    (tmp_path / LEAVING).mkdir(parents=True)
    (tmp_path / LEAVING / HOSTS[0].instance_id).touch()
    # `fab replace` holds nodes like this.
    cluster.runs.release("one")
    cluster.runs.claim("20261120-121314-task-ab12", HOSTS[1:2], task="fab replace")
    cluster.runs.claim("one", [HOSTS[0], *HOSTS[2:]])
    cluster.members[HOSTS[2].instance_id] = ["Terminating:Wait", "Healthy"]
    cluster.silent = {host.name for host in HOSTS[:3]}
    cluster.pass_time(LOST_S * 3)
    assert (cluster.marked, cluster.troubles) == ([], [])


def test_more_than_half_of_the_workers_at_once_are_the_masters_fault(cluster: Cluster) -> None:
    cluster.pass_time(60.0)
    cluster.cut(*HOSTS[1:])
    cluster.pass_time(LOST_S * 3)
    assert cluster.marked == []
    words = "3 of 4 workers do not respond, so the cause is probably the master's network or the shared file system"
    assert cluster.troubles == [words] * 3, "once for each"


def test_half_of_the_workers_are_replaced(cluster: Cluster) -> None:
    cluster.pass_time(60.0)
    cluster.cut(*HOSTS[2:])
    cluster.pass_time(LOST_S + PERIOD_S)
    assert sorted(cluster.marked) == [host.instance_id for host in HOSTS[2:]]


def test_no_more_are_replaced_in_an_hour_than_the_limit(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, max_per_hour=1)
    cluster.pass_time(60.0)
    cluster.cut(*HOSTS[2:])
    cluster.pass_time(LOST_S * 3)
    assert len(cluster.marked) == 1
    (left,) = {host.name.removeprefix("deeplearning-") for host in HOSTS[2:] if host.instance_id not in cluster.marked}
    remedy = f"to replace it now: `fab replace {left}`"
    assert cluster.troubles == [f"the limit max_replacements_per_hour = 1 is reached; {remedy}"]


@pytest.mark.parametrize("settings", [{"max_per_hour": 0}, {"group": ""}])
def test_disabled_replacement_checks_neither_nodes_nor_aws(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: Any
) -> None:
    cluster = Cluster(tmp_path, **settings)
    monkeypatch.setattr(cluster.workers, "_run", lambda *_: pytest.fail("asked"))
    cluster.pass_time(LOST_S * 3)
    assert cluster.log.read() == []


def test_nothing_is_replaced_while_aws_is_unreachable(cluster: Cluster) -> None:
    cluster.pass_time(60.0)
    cluster.error = "Could not connect to the endpoint URL"
    cluster.cut(HOSTS[3])
    cluster.pass_time(LOST_S * 2)
    assert (cluster.marked, cluster.log.read()) == ([], [])
    assert "cannot replace lost workers: Could not connect to the endpoint URL" in cluster.lines[0]
    cluster.error = ""
    cluster.pass_time(CALL_S)
    assert cluster.marked == [HOSTS[3].instance_id]


def test_master_without_the_permission_says_how_to_get_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(command: Sequence[str], timeout_s: float) -> Completed:
        if "set-instance-health" in command:
            return Completed(status=254, output="An error occurred (AccessDenied): not authorized")
        return cluster.run(command, timeout_s)

    monkeypatch.setattr(cluster.workers, "_run", denied)
    cluster.pass_time(60.0)
    cluster.cut(HOSTS[3])
    cluster.pass_time(LOST_S * 3)
    assert [each.endswith("; to grant the master this permission: `fab up`") for each in cluster.troubles] == [True]


def test_worker_with_faulty_gpu_is_replaced_after_two_checks(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, make_nodes(2, kind="x86_64-sm80", slots=2))
    well = "deepcdk: nvidia-smi\n00000000:10:1C.0, 0\n00000000:20:1C.0, 0\ndeepcdk: status 0\n"
    fallen = "[1.2] NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.\n"
    one, two = (host.name for host in cluster.hosts)
    cluster.output = {one: well, two: well}
    cluster.pass_time(LOST_S * 2)
    cluster.output[two] = fallen + well
    cluster.pass_time(PERIOD_S)
    assert cluster.marked == []
    cluster.pass_time(PERIOD_S)
    assert cluster.marked == [cluster.hosts[1].instance_id]
    assert cluster.log.read()[0].reason == "GPU 0000:10:1c: Xid 79, the GPU has fallen off the bus"
    cluster.output[one] = "garbage"
    cluster.pass_time(LOST_S * 2)
    assert len(cluster.marked) == 1
