"""A worker whose root writes what it likes into the registry: the other nodes and the laptop leave it out, unharmed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually
from tools import demo

REGISTRY = "/mnt/efs/.cluster/nodes"
NODES = "/opt/deeplearning/nodes"
VICTIM = "deeplearning-worker2"
IP, GPUS = 1, 5
"""Places of facts in a node's entry."""
INJECTED = "/tmp/injected-by-a-worker"
BAD_NAMES = (
    f"deeplearning-workerstale_s[$(touch {INJECTED})]".replace("/", "${PATH:0:1}"),  # a directory's name has no slash
    "deeplearning-worker1.bak",
    "deeplearning-worker08",
    f"deeplearning-worker3\n1 stale_s[$(touch {INJECTED})]".replace("/", "${PATH:0:1}"),
)


class Cluster:
    """Reach the nodes of the shared cluster by name, as their root."""

    def __init__(self, cloud: EmbeddedCloud) -> None:
        self.cloud = cloud
        (master,) = cloud.instances("master")
        self.ids = {"deeplearning-master": master["InstanceId"]}
        eventually(lambda: self.is_whole("deeplearning-master"))
        self.ids |= {line.split()[0]: line.split()[2] for line in self.listed()}

    def shell(self, node: str, script: str, *words: str) -> str:
        """Run a shell program on a node; return its output."""
        return self.cloud.localcloud("exec", self.ids[node], "--", "sh", "-ec", script, "sh", *words).stdout

    def listed(self, node: str = "deeplearning-master") -> list[str]:
        """Return the lines of the nodes file on a node."""
        return self.shell(node, f"cat {NODES}").splitlines()

    def is_whole(self, node: str) -> bool:
        """Return whether a node lists all three, and has nothing to say against any."""
        return [line.split()[0] for line in self.listed(node)] == [
            "deeplearning-master",
            "deeplearning-worker1",
            VICTIM,
        ]

    def plant(self, fact: int, text: str) -> None:
        """Write a fact of the victim, by its place in the entry, as a worker's root can."""
        written = self.shell(VICTIM, 'cat "$1"', f"{REGISTRY}/{VICTIM}").removesuffix("\n").split(",")
        written[fact] = text
        self.shell(VICTIM, 'printf "%s\\n" "$1" >"$2"', ",".join(written), f"{REGISTRY}/{VICTIM}")

    def is_injected(self) -> bool:
        """Return whether text of the victim was executed on any node, or on the laptop."""
        tries = [self.shell(node, 'test -e "$1" && echo yes || true', INJECTED) for node in self.ids]
        return "yes\n" in tries or Path(INJECTED).exists() or (demo.ROOT / "INJECTED").exists()


@pytest.fixture
def nodes(cluster: EmbeddedCloud) -> Iterator[Cluster]:
    """Reach the nodes, and put the registry back to what it was, whatever the test has planted."""
    found = Cluster(cluster)
    kept = f"/mnt/efs/.cluster/kept-{VICTIM}"
    found.shell(VICTIM, f'cp "$1" {kept}', f"{REGISTRY}/{VICTIM}")
    try:
        yield found
    finally:
        for name in BAD_NAMES:
            found.shell(VICTIM, 'rm -rf "$1"', f"{REGISTRY}/{name}")
        found.shell(VICTIM, f'cat {kept} >"$1"; rm {kept}', f"{REGISTRY}/{VICTIM}")
        eventually(lambda: all(found.is_whole(node) for node in found.ids))


def test_the_laptop_leaves_out_a_worker_with_a_hostile_address_and_says_so(nodes: Cluster) -> None:
    cloud = nodes.cloud
    nodes.plant(IP, f"10.0.64.5\\'$(touch {INJECTED})\\'")
    told = f"{VICTIM} is left out: its ip in the registry breaks the rule"
    eventually(lambda: f"# {told}" in nodes.listed())
    ran = cloud.laptop("fab", "run", "--json", *demo.settings(2), "--", "true")
    assert [host["name"] for host in json.loads(ran.stdout)["hosts"]] == ["deeplearning-worker1"]
    load = cloud.fab("status", "--load", "--json")
    names = {each["instance"]: each["name"] for each in json.loads(load.stdout)["load"]}
    assert names == {nodes.ids[name]: "" if name == VICTIM else name for name in nodes.ids}
    written = cloud.fab("ssh-config", "--json")
    answer = json.loads(written.stdout)
    assert set(answer["hosts"]) == {"deepcdk-master", "deepcdk-worker1"}
    assert all("touch" not in Path(answer[file]).read_text() for file in ("config", "known_hosts"))
    assert cloud.laptop("ssh", "-F", answer["config"], "deepcdk-worker1", "echo", "here").stdout == "here\n"
    for done in (ran, load, written):
        assert done.stderr.count("warning: ") == 1
        assert told in done.stderr
        assert "`fab replace INSTANCE_ID` replaces it" in done.stderr
    assert not nodes.is_injected()


def test_no_name_and_no_fact_of_a_worker_is_executed_and_every_registry_lives_on(nodes: Cluster) -> None:
    for name in BAD_NAMES:
        nodes.shell(VICTIM, 'cp "$1" "$2"', f"{REGISTRY}/{VICTIM}", f"{REGISTRY}/{name}")
    nodes.plant(GPUS, f"0; touch {INJECTED}")
    others = [name for name in nodes.ids if name != VICTIM]
    told = f"# {VICTIM} is left out: its gpus in the registry breaks the rule"
    eventually(lambda: all(told in nodes.listed(name) for name in others))
    for name in others:
        show = "cat /etc/profile.d/deeplearning.sh /etc/hosts; cat /etc/ssh/ssh_known_hosts || true"
        profile = nodes.shell(name, f". /etc/profile.d/deeplearning.sh; echo $DEEPLEARNING_WORKERS_COUNT; {show}")
        assert profile.startswith("1\n")
        assert "touch" not in profile
    log = nodes.shell("deeplearning-master", "cat /var/log/deepcdk-registry.log")
    assert [log.count(word) for word in ("deeplearning-worker1.bak", "deeplearning-worker08")] == [1, 1]
    assert not nodes.is_injected()
    nodes.plant(GPUS, "0")
    eventually(lambda: all(nodes.is_whole(name) for name in nodes.ids))
    assert not nodes.is_injected()
