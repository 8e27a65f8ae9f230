"""A network scan of deployed clusters from all sides matches the rules in their templates.

All clusters run next to each other on one cloud. Each has two workers and is deployed from its synthesized template.
For resources that the cloud does not support, the test first checks that the cloud rejects them and then removes them.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.conftest import EmbeddedCloud, start_cloud
from tests.e2e.own_clouds import field
from tests.e2e.own_clouds.field import LAPTOP_ADDRESS, OUTSIDE_ADDRESS
from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.reachability import Packet, Place, passes
from tests.stacks.clusters.synthesis import synthesise
from tests.stacks.clusters.template import Template
from tests.waiting import eventually

Document = dict[str, Any]

SCANNED: Final = ("default CPU", "existing VPC", "no SSH", "everything")
"""Clusters with different network rules; the others differ from the first one only in their instances."""
GIVEN: dict[str, Any] = {"ssh_cidr": (f"{LAPTOP_ADDRESS}/32",)}
NETWORK = (
    *("VPC", "Subnet", "RouteTable", "Route", "SubnetRouteTableAssociation", "InternetGateway", "VPCGatewayAttachment"),
    *("EIP", "NatGateway"),
)
# Unsupported by the embedded cloud: the words of its error message, and the resource types that the scan omits.
NO_EFA = ("NetworkInterfaces.InterfaceType", "NetworkInterfaces.NetworkCardIndex")
NOT_THERE = ("AWS::EC2::VPCEndpoint", "AWS::EC2::FlowLog", "AWS::FSx::DataRepositoryAssociation")


def is_missing(item: Document) -> bool:
    """Return whether the embedded cloud lacks a resource type; it supports only gateway endpoints."""
    gateway = item["Properties"].get("VpcEndpointType") == "Gateway" if "Properties" in item else False
    return item["Type"] in NOT_THERE and not gateway


def without_types(document: Document) -> Document:
    """Remove resources of unsupported types."""
    changed = copy.deepcopy(document)
    changed["Resources"] = {id: item for id, item in changed["Resources"].items() if not is_missing(item)}
    for item in changed["Resources"].values():
        if "DependsOn" in item:
            item["DependsOn"] = [id for id in item["DependsOn"] if id in changed["Resources"]]
    return changed


def network_of(document: Document) -> Document:
    """Return the VPC part of a template."""
    kinds = {f"AWS::EC2::{kind}" for kind in NETWORK}
    return {"Resources": {id: item for id, item in document["Resources"].items() if item["Type"] in kinds}}


def replaced(value: Any, ids: dict[str, str]) -> Any:
    """Return part of a template with resource ids replaced by references."""
    if isinstance(value, dict):
        return {key: replaced(each, ids) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, ids) for each in value]
    return {"Ref": ids[value]} if isinstance(value, str) and value in ids else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scanned:
    cloud: EmbeddedCloud
    templates: dict[str, Template]
    places: dict[str, list[Place]]
    results: dict[str, dict[Packet, bool]]
    refused: dict[str, str]


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scanned]:
    with start_cloud(f"s{os.getpid()}") as cloud:
        yield scan_all(cloud, tmp_path_factory)


def scan_all(cloud: EmbeddedCloud, folders: pytest.TempPathFactory) -> Scanned:
    """Deploy every cluster and scan it."""
    around, existing_ids, existing = existing_vpc(cloud, folders)
    made: dict[str, Document] = {}
    for name in (*SCANNED, "p5 with EFA"):
        cluster = CLUSTERS[name]
        opened = GIVEN if cluster.config().opens_ssh_port else {}
        beside = existing if name == "existing VPC" else {}
        config = cluster.config(**{**opened, **beside, "workers": 2, "retain_data": False})
        made[config.name] = synthesise(config).document
    wanted = {CLUSTERS[name].config().name: made[CLUSTERS[name].config().name] for name in SCANNED}
    wanted["everything"] = without_types(made["everything"])
    refused = field.deploy(cloud, folders.mktemp("refused"), {name: made[name] for name in ("p5", "everything")})
    answers = field.deploy(cloud, folders.mktemp("wanted"), wanted)
    failed = {name: answer for name, answer in answers.items() if answer.get("status") != "CREATE_COMPLETE"}
    assert not failed, json.dumps(failed, indent=1)
    templates = {name: Template(document) for name, document in wanted.items()}
    templates["guest"] = Template(replaced({"Resources": {**wanted["guest"]["Resources"], **around}}, existing_ids))
    subnets = {name: {id: logical for logical, id in answer["ids"].items()} for name, answer in answers.items()}
    subnets["guest"] |= existing_ids
    found = field.places(cloud, templates, subnets)
    return Scanned(
        cloud=cloud,
        templates=templates,
        places=found,
        results=field.scan(cloud, templates, found),
        refused={name: str(answer.get("refused", "")) for name, answer in refused.items()},
    )


def existing_vpc(
    cloud: EmbeddedCloud, folders: pytest.TempPathFactory
) -> tuple[Document, dict[str, str], dict[str, Any]]:
    """Create a VPC for a later cluster; return its resources, their names, and the cluster's values."""
    values = CLUSTERS["existing VPC"].values
    template = synthesise(
        CLUSTERS["default CPU"].config(vpc_cidr=values["vpc_cidr"], availability_zones=values["availability_zones"])
    )
    network = network_of(template.document)
    ids = field.deploy(cloud, folders.mktemp("network"), {"landlord": network})["landlord"]["ids"]
    logical = {id: name for name, id in ids.items()}
    return (
        network["Resources"],
        logical,
        {
            "vpc_id": ids[template.only("AWS::EC2::VPC")],
            "public_subnet_ids": [ids[subnet] for subnet in template.subnets_of("MasterGroup")],
            "private_subnet_ids": [ids[subnet] for subnet in template.subnets_of("WorkerGroup")],
        },
    )


def test_efa_is_rejected_with_its_name(scanned: Scanned) -> None:
    assert all(word in scanned.refused["p5"] for word in NO_EFA), scanned.refused["p5"]
    assert "its hosts have no EFA devices" in scanned.refused["p5"]


def test_endpoints_flow_logs_and_links_with_s3_are_rejected_with_their_names(scanned: Scanned) -> None:
    assert all(word in scanned.refused["everything"] for word in NOT_THERE), scanned.refused["everything"]


def differences(scanned: Scanned, stack: str, results: dict[Packet, bool]) -> list[Packet]:
    """Return the packets that the scan and the rules of the template treat differently."""
    everybody = {place.name: place for place in [field.LAPTOP, field.STRANGER, *scanned.places[stack]]}
    template = scanned.templates[stack]
    said = {each: passes(template, each, everybody[each.source], everybody[each.target]) for each in results}
    return sorted(packet for packet in results if results[packet] != said[packet])


@pytest.mark.parametrize("name", SCANNED)
def test_scan_finds_exactly_the_ports_of_the_template(name: str, scanned: Scanned) -> None:
    config = CLUSTERS[name].config()
    results = scanned.results[config.name]
    kinds = sorted(place.name.split()[0] for place in scanned.places[config.name])
    assert kinds.count("master") == 1 and kinds.count("worker") == 2 and "efs" in kinds
    assert ("fsx" in kinds) == (name == "everything")
    assert differences(scanned, config.name, results) == []
    for source in ("master", "worker"):
        assert {results[packet] for packet in results if packet.source.startswith(source)} == {True, False}
    from_laptop = {
        (packet.target.split()[0], packet.port) for packet in results if packet.source == "laptop" and results[packet]
    }
    assert from_laptop == ({("master", 22)} if config.opens_ssh_port else set())
    assert not any(results[packet] for packet in results if packet.source == "stranger")


def test_port_open_against_the_template_is_found(scanned: Scanned) -> None:
    (group,) = scanned.cloud.aws(
        *("ec2", "describe-security-groups", "--query", "SecurityGroups[].GroupId", "--filters"),
        *("Name=tag:deepcdk:cluster,Values=deepcdk", "Name=description,Values=SSH from ssh_cidr"),
    )
    hole = ("--group-id", group, "--protocol", "tcp", "--port", "8080", "--cidr", f"{OUTSIDE_ADDRESS}/32")
    scanned.cloud.laptop("aws", "ec2", "authorize-security-group-ingress", *hole)
    one = {"deepcdk": scanned.templates["deepcdk"]}
    found: list[Packet] = []

    def comes_in() -> bool:
        results = field.scan(scanned.cloud, one, {"deepcdk": scanned.places["deepcdk"]}, only="stranger")
        found[:] = differences(scanned, "deepcdk", results["deepcdk"])
        return bool(found)

    eventually(comes_in)
    assert [(packet.source, packet.target.split()[0], packet.protocol, packet.port) for packet in found] == [
        ("stranger", "master", "tcp", 8080)
    ]
