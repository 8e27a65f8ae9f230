"""Reachability according to templates with a known answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stacks.clusters.reachability import (
    Packet,
    Place,
    groups_of_nodes,
    groups_of_targets,
    passes,
    ports,
)
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template

MASTER_PUBLIC = "198.18.1.1"


@pytest.fixture
def template(inspected: Callable[[str], Inspected]) -> Template:
    return inspected("default CPU").template


@pytest.fixture
def places(template: Template) -> dict[str, Place]:
    def node(name: str, group: str, address: str, public: str = "") -> Place:
        groups, (subnet,) = groups_of_nodes(template, group), template.subnets_of(group)
        return Place(name=name, address=address, groups=groups, subnet=subnet, public=public)

    files = groups_of_targets(template, "AWS::EFS::MountTarget", "SecurityGroups")
    return {
        "given": Place(name="given", address="198.18.0.7"),
        "stranger": Place(name="stranger", address="198.18.0.8"),
        "master": node("master", "MasterGroup", "10.0.0.9", MASTER_PUBLIC),
        "one": node("one", "WorkerGroup", "10.0.64.9"),
        "two": node("two", "WorkerGroup", "10.0.64.8"),
        "files": Place(name="files", address="10.0.64.7", groups=files, subnet=template.subnets_of("WorkerGroup")[0]),
    }


def reached(template: Template, places: dict[str, Place], source: str, target: str, address: str = "") -> set[int]:
    """Return the TCP ports of one place that another can reach."""
    to = address or places[target].address
    tried = [Packet(source=source, target=target, address=to, protocol="tcp", port=port) for port in ports(template)]
    return {packet.port for packet in tried if passes(template, packet, places[source], places[target])}


def test_reachability_matrix_of_default_cluster(template: Template, places: dict[str, Place]) -> None:
    every = set(ports(template))
    assert {21, 22, 23, 2048, 2049, 2050} <= every
    assert reached(template, places, "given", "master", MASTER_PUBLIC) == {22}
    assert reached(template, places, "stranger", "master", MASTER_PUBLIC) == set()
    assert reached(template, places, "given", "master") == reached(template, places, "given", "one") == set()
    assert reached(template, places, "master", "one") == {22}
    assert reached(template, places, "one", "two") == every
    assert reached(template, places, "one", "master") == set()
    assert reached(template, places, "one", "files") == reached(template, places, "master", "files") == {2049}
    assert reached(template, places, "one", "stranger") == reached(template, places, "master", "stranger") == every
