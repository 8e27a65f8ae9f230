"""Root on a worker writes arbitrary text to the registry: other nodes and the laptop ignore it, unharmed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.hostile.nodes import FIND_AWS, GPUS, HOST_KEY, INJECTED, IP, REGISTRY, SHARED_KEY, VICTIM, Cluster
from tests.waiting import eventually

BAD_NAMES = (
    f"deeplearning-workerstale_s[$(touch {INJECTED})]".replace("/", "${PATH:0:1}"),  # directory names have no slash
    "deeplearning-worker1.bak",
    "deeplearning-worker08",
    f"deeplearning-worker3\n1 stale_s[$(touch {INJECTED})]".replace("/", "${PATH:0:1}"),
)


@pytest.fixture
def nodes(cluster: EmbeddedCloud) -> Iterator[Cluster]:
    """Return the nodes, and restore the registry after the test."""
    found = Cluster(cluster)
    with found.restored(BAD_NAMES):
        yield found


def test_laptop_excludes_a_worker_with_a_hostile_address_and_reports_it(nodes: Cluster) -> None:
    cloud = nodes.cloud
    nodes.plant(IP, f"10.0.64.5\\'$(touch {INJECTED})\\'")
    told = f"{VICTIM} is left out: its ip in the registry is invalid"
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


def test_names_and_facts_of_a_worker_are_never_executed(nodes: Cluster) -> None:
    for name in BAD_NAMES:
        nodes.shell(VICTIM, 'cp "$1" "$2"', f"{REGISTRY}/{VICTIM}", f"{REGISTRY}/{name}")
    nodes.plant(GPUS, f"0; touch {INJECTED}")
    others = [name for name in nodes.ids if name != VICTIM]
    told = f"# {VICTIM} is left out: its gpus in the registry is invalid"
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


def test_forged_master_key_of_a_worker_opens_no_other_worker(nodes: Cluster) -> None:
    other = "deeplearning-worker1"
    address = next(line.split()[1] for line in nodes.listed() if line.startswith(f"{other} "))
    user = nodes.cloud.outputs()["LoginUser"]
    make = 'rm -f /tmp/evil /tmp/evil.pub; ssh-keygen -q -t ed25519 -N "" -f /tmp/evil; cat /tmp/evil.pub'
    evil = nodes.shell(VICTIM, make).split()[1]
    put = f'aws ssm put-parameter --name "$key_parameter" --overwrite --value "ssh-ed25519 {evil} 10.0.0.9"'
    tried = nodes.shell(VICTIM, f"{FIND_AWS} . /opt/deepcdk/node.conf; {put} 2>&1 || true")
    assert "AccessDeniedException" in tried
    nodes.shell(VICTIM, f'cut -d" " -f1-2 /tmp/evil.pub >{SHARED_KEY}')
    told = "ignoring the registry's master.pub: it is not the master's key in AWS"
    eventually(lambda: told in nodes.shell(other, "cat /var/log/deepcdk-registry.log"))
    login = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i /tmp/evil"
    tried = nodes.shell(VICTIM, f"{login} {user}@{address} echo in 2>&1 || true")
    assert "Permission denied" in tried
    assert "\nin\n" not in tried
    ran = nodes.cloud.laptop("fab", "run", "--json", *demo.settings(2), "--", "true")
    assert len(json.loads(ran.stdout)["hosts"]) == 2


def test_forged_host_key_for_another_worker_is_ignored_and_logged(nodes: Cluster) -> None:
    before = nodes.shell("deeplearning-master", "cat /etc/ssh/ssh_known_hosts")
    evil = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'EVIL':A<43}"
    nodes.plant(HOST_KEY, evil)
    told = f"{VICTIM} is left out: its host key in the registry differs from its console"
    eventually(lambda: f"# {told}" in nodes.listed())
    known = nodes.shell("deeplearning-master", "cat /etc/ssh/ssh_known_hosts")
    assert VICTIM in before
    assert VICTIM not in known
    assert "EVIL" not in known
    assert told in nodes.shell("deeplearning-master", "cat /var/log/deepcdk-registry.log")
