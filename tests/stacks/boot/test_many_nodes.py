"""Many nodes boot concurrently on one registry with opens that take 2 ms; the reads of each node are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from stacks.worker_limits import BUSY_BYTES
from tests.stacks.boot.nodelab import Lab, Node, booted
from tests.stacks.boot.slow_opens import build

OPEN_US = 2000
CONSOLES_IN_A_PASS = 64
PASSES_IN_FIVE_MINUTES = 30
"""Passes of a worker that has run for more than a minute: one every ten seconds."""


class Crowd:
    """A booted master, and workers that are about to take a name."""

    def __init__(self, folder: Path, count: int) -> None:
        (folder / "lab").mkdir(parents=True)
        self.lab = Lab(folder / "lab")
        self.slow = build(folder, OPEN_US)
        self.master = booted(self.lab.node("master", 1))
        model = booted(self.lab.node("worker", 2))
        (self.lab.shared / ".cluster/nodes/deeplearning-worker1").unlink()
        self.workers = [self._worker(model, number) for number in range(3, count + 3)]

    def _worker(self, model: Node, number: int) -> Node:
        """Return a worker after all steps of its boot except the last one, which takes the name."""
        node = self.lab.node("worker", number)
        installed = node.root / "opt/deepcdk"
        (node.root / "opt/deeplearning").mkdir(parents=True)
        (node.root / "etc/profile.d").mkdir()
        for home in ("home/ec2-user", "home/deepcdk-rank", "root"):
            (node.root / home / ".ssh").mkdir(parents=True)
        (node.root / "mnt").mkdir()
        installed.mkdir()
        (installed / "bin").symlink_to(model.root / "opt/deepcdk/bin")
        settings = (model.root / "opt/deepcdk/node.conf").read_text()
        settings = settings.replace(model.instance_id, node.instance_id).replace(f"ip={model.ip}\n", f"ip={node.ip}\n")
        (installed / "node.conf").write_text(settings)
        (node.root / "mnt/efs").symlink_to(self.lab.shared)
        node.print_keys()
        return node

    def refresh_at_once(self, *nodes: Node) -> list[str]:
        """Start one pass on all nodes concurrently, as at the end of their boot; return the output of failed passes."""
        started = []
        for node in nodes:
            slow = self.slow.environment(node.instance_id, node.root / "mnt/efs")
            # No watcher refreshes their heartbeats, and this machine has fewer cores than the nodes together.
            started.append(node.registry("refresh", DEEPCDK_STALE_S="3600", **slow))
        said = [process.communicate(timeout=300)[0] for process in started]
        return [text for process, text in zip(started, said, strict=True) if process.returncode]

    def reads(self, node: Node) -> int:
        """Return how many opens for reading another pass of a node makes."""
        before = self.slow.reads(node.instance_id)
        assert self.refresh_at_once(node) == []
        return self.slow.reads(node.instance_id) - before


@pytest.fixture(scope="module", params=[16, pytest.param(64, marks=pytest.mark.full)])
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    """Boot this number of workers concurrently."""
    found = Crowd(tmp_path_factory.mktemp("crowd"), request.param)
    assert found.refresh_at_once(*found.workers) == []
    return found


def test_nodes_of_large_group_booting_together_take_distinct_lowest_names(crowd: Crowd) -> None:
    names = {f"deeplearning-worker{index}" for index in range(1, len(crowd.workers) + 1)}
    owners = crowd.lab.owners()
    assert set(owners) == {"deeplearning-master", *names}
    assert {owners[name] for name in names} == {node.instance_id for node in crowd.workers}
    for _ in range(0, len(names), CONSOLES_IN_A_PASS):
        assert crowd.refresh_at_once(crowd.master) == []
    assert crowd.master.text("opt/deeplearning/workers").split() == sorted(names, key=lambda name: (len(name), name))
    asked = (crowd.lab.folder / "consoles").read_text().split()
    assert sorted(asked) == sorted(node.instance_id for node in crowd.workers)  # each once


def test_reads_per_node_do_not_grow_with_the_group(crowd: Crowd) -> None:
    assert crowd.refresh_at_once(crowd.master) == []
    assert [crowd.reads(node) for node in crowd.workers[:3]] == [4, 4, 4]
    assert crowd.reads(crowd.master) == len(crowd.workers) + 4


def test_registry_of_idle_group_causes_little_traffic(crowd: Crowd) -> None:
    """Even without any caching, and with an overhead of 1 kB per request."""
    assert crowd.refresh_at_once(crowd.master) == []
    read = sum((crowd.lab.shared / ".cluster" / name).stat().st_size for name in ("list", "master.pub"))
    a_pass = read + 1000 * 4 * crowd.reads(crowd.workers[0])
    assert PASSES_IN_FIVE_MINUTES * a_pass < BUSY_BYTES / 5
