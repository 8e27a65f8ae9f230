"""A second cluster on the shared cloud, with no port open to anybody: it is reached over Session Manager."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import EmbeddedCloud
from tests.e2e.test_network import CLOSED, probe

SETTINGS = ("name=noport", "ssh_access=session-manager", "workers=1", "vpc_cidr=10.7.0.0/20", "retain_data=false")


def fab(cloud: EmbeddedCloud, *words: str) -> str:
    chosen = [word for setting in SETTINGS for word in ("--set", setting)]
    return cloud.laptop("fab", *words[:1], *chosen, *words[1:]).stdout


@pytest.fixture(scope="module")
def closed(cloud: EmbeddedCloud) -> Iterator[EmbeddedCloud]:
    fab(cloud, "up", "--yes")
    yield cloud
    fab(cloud, "down", "--yes")


def test_tasks_reach_a_cluster_without_an_open_port(closed: EmbeddedCloud) -> None:
    nodes = [
        instance
        for role in ("master", "worker")
        for instance in closed.instances(role)
        if {"Key": "deepcdk:cluster", "Value": "noport"} in instance["Tags"]
    ]
    assert len(nodes) == 2
    assert not any("PublicIpAddress" in node for node in nodes)
    names = {"ip-" + node["PrivateIpAddress"].replace(".", "-") for node in nodes}
    assert {
        fab(closed, "run", "--", "hostname").split()[-1],
        fab(closed, "run", "--master", "--", "hostname").split()[-1],
    } == names
    master, worker = nodes
    for place in ("run", "outside"):
        assert probe(closed, [place], master["PrivateIpAddress"], 22) == CLOSED
    known = closed.aws("ssm", "describe-instance-information")["InstanceInformationList"]
    assert [each["InstanceId"] for each in known] == [master["InstanceId"]]
    closed.laptop("sh", "-c", "fab ssh-config --set name=noport --set ssh_access=session-manager")
    done = closed.laptop("sh", "-c", "ssh -F ~/.ssh/deepcdk/noport.config noport-worker1 hostname")
    assert done.stdout.split() == ["ip-" + worker["PrivateIpAddress"].replace(".", "-")]
