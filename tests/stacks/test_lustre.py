"""The Lustre file system: its ports, its subnet, and its link to S3."""

from __future__ import annotations

from collections.abc import Callable

from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Variant

SYSTEM = "AWS::FSx::FileSystem"
LINK = "AWS::FSx::DataRepositoryAssociation"
NO_TRAFFIC = ("255.255.255.255/32", "icmp", 252, 86)
"""The CDK's rule for no outbound traffic."""


def test_by_default_there_is_none(template: Template) -> None:
    assert "FSx" not in template.text()


def test_it_is_as_asked(variant: Variant, inspected: Callable[[str], Inspected]) -> None:
    (scratch,) = variant("borrowed").of(SYSTEM).values()
    assert scratch["StorageCapacity"] == 1200
    assert scratch["LustreConfiguration"] == {"DeploymentType": "SCRATCH_2", "DataCompressionType": "NONE"}
    assert "KmsKeyId" not in scratch, "a scratch file system has FSx's own key, whatever key is asked for"
    (persistent,) = inspected("everything").template.of(SYSTEM).values()
    assert persistent["LustreConfiguration"] == {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 125,
        "DataCompressionType": "LZ4",
    }
    assert persistent["KmsKeyId"] == {"Fn::GetAtt": ["StorageKey", "Arn"]}


def test_its_ports_are_open_among_servers_and_nodes_and_to_nobody_else(variant: Variant) -> None:
    template = variant("borrowed")
    servers = template.group_behind("Lustre from all nodes")
    nodes = (template.group_behind("SSH from ssh_cidr"), template.group_behind("Each other and the master"))
    ports = {(988, 988), (1018, 1023)}
    for direction in ("in", "out"):
        found = {rule[2:] for rule in template.rules() if rule[:2] == (direction, servers)} - {NO_TRAFFIC}
        assert found == {(peer, "tcp", *each) for peer in (servers, *nodes) for each in ports}
    # Without its own rule, a group would get AWS's default: all outbound traffic.
    assert ("out", servers, *NO_TRAFFIC) in template.rules()
    for node in nodes:
        found = {rule[2:] for rule in template.rules() if rule[:3] == ("in", node, servers)}
        assert found == {(servers, "tcp", *each) for each in ports}


def test_it_is_made_after_the_rules_without_which_fsx_refuses_it(variant: Variant) -> None:
    template = variant("borrowed")
    servers = template.group_behind("Lustre from all nodes")
    among = {
        id
        for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
        for id, rule in template.of(kind).items()
        if servers in str(rule["GroupId"])
        and servers in str(rule.get("SourceSecurityGroupId", rule.get("DestinationSecurityGroupId")))
    }
    system = template.resources[template.only(SYSTEM)]
    assert among
    assert among <= set(system["DependsOn"])
    assert [subnet["Ref"] for subnet in system["Properties"]["SubnetIds"]] == template.subnets_of("WorkerGroup")[:1]
    assert system["DeletionPolicy"] == "Delete"


def test_the_nodes_mount_it(variant: Variant) -> None:
    template = variant("borrowed")
    for group in ("MasterGroup", "WorkerGroup"):
        text = template.user_data(group)
        assert "LustreMountName}" in text
        assert "export DEEPCDK_LUSTRE_MOUNT=/mnt/fsx\n" in text
    assert template.document["Outputs"]["FsxMount"]["Value"] == "/mnt/fsx"


def test_a_bucket_shows_up_in_one_directory_and_gets_files_back_on_request_only(
    variant: Variant, inspected: Callable[[str], Inspected]
) -> None:
    (link,) = inspected("everything").template.of(LINK).values()
    assert (link["FileSystemPath"], link["DataRepositoryPath"]) == ("/data", "s3://records/imagenet")
    assert link["S3"]["AutoExportPolicy"] == {"Events": ["NEW", "CHANGED"]}
    assert link["S3"]["AutoImportPolicy"] == {"Events": ["NEW", "CHANGED", "DELETED"]}
    (read_only,) = variant("borrowed").of(LINK).values()
    assert "AutoExportPolicy" not in read_only["S3"]
