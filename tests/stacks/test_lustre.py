"""The Lustre file system: its ports, its place, its link to S3, and that it comes up at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.stacks.clusters.template import Template
from tests.stacks.clusters.test_template import inspect_with_nag

SYSTEM = "AWS::FSx::FileSystem"
NO_TRAFFIC = ("255.255.255.255/32", "icmp", 252, 86)
"""How the CDK writes that nothing may leave."""
LINK = "AWS::FSx::DataRepositoryAssociation"


@pytest.fixture(scope="session")
def scratch(synthesise: Callable[..., Template]) -> Template:
    return synthesise(fsx_capacity_gib=1200)


@pytest.fixture(scope="session")
def linked(synthesise: Callable[..., Template]) -> Template:
    return synthesise(
        fsx_capacity_gib=4800,
        fsx_deployment="PERSISTENT_2",
        fsx_throughput=250,
        fsx_compression=True,
        fsx_s3="s3://imagenet/records",
        fsx_export=True,
        kms_key="create",
    )


def test_by_default_there_is_none(template: Template) -> None:
    assert not template.of(SYSTEM)
    assert not template.of(LINK)
    assert not [key for key in template.document["Outputs"] if key.startswith("Fsx")]


def test_it_is_as_asked(scratch: Template, linked: Template) -> None:
    (plain,) = scratch.of(SYSTEM).values()
    assert plain["StorageCapacity"] == 1200
    assert plain["LustreConfiguration"] == {"DeploymentType": "SCRATCH_2", "DataCompressionType": "NONE"}
    (asked,) = linked.of(SYSTEM).values()
    assert asked["LustreConfiguration"] == {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 250,
        "DataCompressionType": "LZ4",
    }
    assert asked["KmsKeyId"] == {"Fn::GetAtt": ["StorageKey", "Arn"]}


def test_a_scratch_file_system_has_fsxs_own_key_whatever_is_asked(synthesise: Callable[..., Template]) -> None:
    (item,) = synthesise(fsx_capacity_gib=1200, kms_key="create").of(SYSTEM).values()
    assert "KmsKeyId" not in item


def test_it_lies_beside_the_workers_and_goes_with_them(scratch: Template) -> None:
    (item,) = scratch.of(SYSTEM).values()
    assert [subnet["Ref"] for subnet in item["SubnetIds"]] == scratch.subnets_of("WorkerGroup")[:1]
    assert scratch.resources[scratch.only(SYSTEM)]["DeletionPolicy"] == "Delete"


def test_lustres_ports_are_open_among_servers_and_nodes_and_to_nobody_else(scratch: Template) -> None:
    servers = scratch.group_behind("Lustre from all nodes")
    master, workers = scratch.group_behind("SSH from ssh_cidr"), scratch.group_behind("Each other and the master")
    ports = {(988, 988), (1018, 1023)}
    for direction in ("in", "out"):
        found = {rule[2:] for rule in scratch.rules() if rule[:2] == (direction, servers)} - {NO_TRAFFIC}
        assert found == {(peer, "tcp", *each) for peer in (servers, master, workers) for each in ports}
    # A group that names no rule of its own would get AWS's default, all traffic out.
    assert ("out", servers, *NO_TRAFFIC) in scratch.rules()
    for node in (master, workers):
        found = {rule[2:] for rule in scratch.rules() if rule[:3] == ("in", node, servers)}
        assert found == {(servers, "tcp", *each) for each in ports}


def test_it_is_made_after_the_rules_without_which_fsx_refuses_it(scratch: Template) -> None:
    servers = scratch.group_behind("Lustre from all nodes")
    among = {
        id
        for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
        for id, rule in scratch.of(kind).items()
        if servers in str(rule["GroupId"])
        and servers in str(rule.get("SourceSecurityGroupId", rule.get("DestinationSecurityGroupId")))
    }
    assert among
    assert among <= set(scratch.resources[scratch.only(SYSTEM)]["DependsOn"])


def test_the_nodes_mount_it(scratch: Template) -> None:
    for group in ("MasterGroup", "WorkerGroup"):
        text = str(scratch.template_of(group)["UserData"])
        assert "DEEPCDK_LUSTRE=" in text
        assert "LustreMountName" in text
        assert "export DEEPCDK_LUSTRE_MOUNT=/mnt/fsx" in text
    assert scratch.document["Outputs"]["FsxMount"]["Value"] == "/mnt/fsx"
    assert scratch.document["Outputs"]["FsxFileSystemId"]["Value"] == {"Ref": scratch.only(SYSTEM)}


def test_a_bucket_shows_up_in_one_directory_and_gets_back_what_is_written_there_only(
    linked: Template, synthesise: Callable[..., Template]
) -> None:
    (link,) = linked.of(LINK).values()
    assert (link["FileSystemPath"], link["DataRepositoryPath"]) == ("/data", "s3://imagenet/records")
    assert link["BatchImportMetaDataOnCreate"] is True
    assert link["S3"]["AutoExportPolicy"] == {"Events": ["NEW", "CHANGED"]}
    assert link["S3"]["AutoImportPolicy"] == {"Events": ["NEW", "CHANGED", "DELETED"]}
    (read_only,) = synthesise(fsx_capacity_gib=1200, fsx_s3="s3://imagenet").of(LINK).values()
    assert "AutoExportPolicy" not in read_only["S3"]


def test_inspectors_find_nothing(scratch: Template, linked: Template, tmp_path: Path) -> None:
    from cfnlint.api import ManualArgs, lint

    for template in (scratch, linked):
        matches = lint(template.text(), config=ManualArgs(regions=["us-east-1", "eu-central-1"]))
        assert [str(match) for match in matches] == []
    inspect_with_nag(tmp_path, fsx_capacity_gib=1200, fsx_s3="s3://imagenet")
