"""Facts about the user's own buckets: the nodes read, and the workers write, those that are named, and no others."""

from __future__ import annotations

from typing import Any

from stacks.grants import AGENT_ACTIONS
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Synthesise

NAMED = ("my-data", "other.data")


def s3_statements(template: Template) -> list[dict[str, Any]]:
    return [each for each in template.statements() if "s3:" in str(each["Action"])]


def arn(bucket: str) -> dict[str, Any]:
    return {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, f":s3:::{bucket}"]]}


def test_nothing_is_readable_by_default(synthesise: Synthesise) -> None:
    assert "my-data" not in str(synthesise().document)
    assert len(s3_statements(synthesise())) == 2  # the runs in the run bucket


def test_both_roles_may_list_and_read_the_named_buckets_and_no_more(synthesise: Synthesise) -> None:
    template = synthesise(data_buckets=NAMED)
    ours = [each for each in s3_statements(template) if "my-data" in str(each)]
    assert len(ours) == 4  # two statements for each of two roles
    listing = {"Action": "s3:ListBucket", "Effect": "Allow", "Resource": [arn(name) for name in NAMED]}
    reading = {"Action": "s3:GetObject", "Effect": "Allow", "Resource": [arn(f"{name}/*") for name in NAMED]}
    assert all(each in (listing, reading) for each in ours)
    assert ours.count(listing) == ours.count(reading) == 2
    holders = {item["Ref"] for each in template.of("AWS::IAM::Policy").values() for item in each["Roles"]}
    assert len(holders) == 2


def test_the_workers_alone_may_write_checkpoints_also_where_they_read_data(synthesise: Synthesise) -> None:
    template = synthesise(checkpoint_buckets=NAMED, data_buckets=NAMED[:1])
    actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    holders = set()
    for policy in template.of("AWS::IAM::Policy").values():
        for each in policy["PolicyDocument"]["Statement"]:
            if "s3:PutObject" in each["Action"] and "data" in str(each["Resource"]):
                assert sorted(each["Action"]) == actions
                assert each["Resource"] == [arn(f"{name}/*") for name in NAMED]
                holders |= {role["Ref"] for role in policy["Roles"]}
    assert len(holders) == 1
    assert "Workers" in holders.pop()
    listing = [each for each in s3_statements(template) if each["Action"] == "s3:ListBucket"]
    assert {"Action": "s3:ListBucket", "Effect": "Allow", "Resource": [arn(name) for name in NAMED]} in listing


def test_the_scratch_directory_is_an_output_where_there_is_one(synthesise: Synthesise) -> None:
    with_disks = synthesise(worker_instance_type="c5d.2xlarge", scratch_mount="/mnt/scratch", spot=True)
    assert with_disks.document["Outputs"]["ScratchMount"]["Value"] == "/mnt/scratch"
    assert "ScratchMount" not in synthesise().document["Outputs"]


NO_SSH = {"ssh_access": "session-manager", "ssh_cidr": ()}


def test_the_masters_role_alone_may_be_reached(synthesise: Synthesise) -> None:
    template = synthesise(**NO_SSH)
    profile = template.template_of("MasterGroup")["IamInstanceProfile"]["Arn"]["Fn::GetAtt"][0]
    (role,) = template.of("AWS::IAM::InstanceProfile")[profile]["Roles"]
    holders = [policy["Roles"] for policy in template.of("AWS::IAM::Policy").values() if "ssmmessages" in str(policy)]
    assert holders == [[role]]


def test_the_agent_may_do_what_aws_names_and_no_more(synthesise: Synthesise) -> None:
    (statement,) = [found for found in synthesise(**NO_SSH).statements() if "ssmmessages" in str(found["Action"])]
    assert set(statement["Action"]) == set(AGENT_ACTIONS)
    assert statement["Resource"] == "*"


def test_with_an_open_port_no_role_knows_session_manager(template: Template) -> None:
    assert "ssmmessages" not in template.text()
    assert template.document["Outputs"]["SshAccess"]["Value"] == "port"
