"""Security groups as the whole set of their rules, and roles as the whole set of their statements."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stacks.config import NFS_PORT, RENDEZVOUS_PORTS, SSH_PORT
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import SSH_CIDR


@pytest.fixture
def groups(template: Template) -> dict[str, str]:
    return {
        "master": template.group_behind("SSH from ssh_cidr"),
        "workers": template.group_behind("Each other and the master"),
        "files": template.group_behind("NFS from all nodes"),
    }


def test_nothing_is_admitted_but_what_the_cluster_needs(template: Template, groups: dict[str, str]) -> None:
    master, workers, files = groups["master"], groups["workers"], groups["files"]
    assert {rule[1:] for rule in template.rules() if rule[0] == "in"} == {
        (master, *SSH_CIDR, "tcp", SSH_PORT, SSH_PORT),
        (master, workers, "tcp", *RENDEZVOUS_PORTS),
        (workers, master, "tcp", SSH_PORT, SSH_PORT),
        (workers, workers, "-1", -1, -1),
        (files, master, "tcp", NFS_PORT, NFS_PORT),
        (files, workers, "tcp", NFS_PORT, NFS_PORT),
    }


def test_ssh_from_networks_comes_from_the_given_cidr_only(synthesise: Callable[..., Template]) -> None:
    given = ("198.18.4.0/24", "198.18.5.0/24")
    template = synthesise(ssh_cidr=given)
    assert {rule[2] for rule in template.rules() if rule[0] == "in" and "/" in rule[2]} == set(given)


def test_ssh_from_prefix_lists_comes_from_these_alone(synthesise: Callable[..., Template]) -> None:
    template = synthesise(ssh_cidr=(), ssh_prefix_lists=("pl-0123456789abcdef0",))
    master = template.group_behind("SSH from ssh_cidr")
    admitted = {rule[2:] for rule in template.rules() if rule[:2] == ("in", master)}
    assert ("pl-0123456789abcdef0", "tcp", SSH_PORT, SSH_PORT) in admitted
    assert not any("/" in rule[0] for rule in admitted)


def test_without_a_source_ssh_is_open_to_no_network(synthesise: Callable[..., Template], template: Template) -> None:
    closed = synthesise(ssh_cidr=())
    assert not any("/" in rule[2] or rule[2].startswith("pl-") for rule in closed.rules() if rule[0] == "in")
    # A group's description cannot be changed without a new group, so one that gets its source later keeps it.
    assert closed.group_behind("SSH from ssh_cidr") == template.group_behind("SSH from ssh_cidr")


def test_with_session_manager_nothing_is_admitted_from_any_network(synthesise: Callable[..., Template]) -> None:
    template = synthesise(ssh_access="session-manager", ssh_cidr=())
    assert not any("/" in rule[2] or rule[2].startswith("pl-") for rule in template.rules() if rule[0] == "in")
    workers, master = template.group_behind("Each other and the master"), template.group_behind("Nothing from outside")
    assert {rule[2] for rule in template.rules() if rule[:2] == ("in", master)} == {workers}


def test_workers_may_send_anything_to_their_own_group_as_efa_wants(template: Template, groups: dict[str, str]) -> None:
    workers = groups["workers"]
    assert ("out", workers, workers, "-1", -1, -1) in template.rules()
    assert ("in", workers, workers, "-1", -1, -1) in template.rules()


def test_nodes_reach_out_and_the_file_system_does_not(template: Template, groups: dict[str, str]) -> None:
    everywhere = {rule[1] for rule in template.rules() if rule[0] == "out" and rule[2] == "0.0.0.0/0"}
    assert everywhere == {groups["master"], groups["workers"]}


def test_nodes_and_mount_targets_are_in_their_own_groups_alone(template: Template, groups: dict[str, str]) -> None:
    for group, expected in (("MasterGroup", groups["master"]), ("WorkerGroup", groups["workers"])):
        (interface,) = template.template_of(group)["NetworkInterfaces"]
        assert [item["Fn::GetAtt"][0] for item in interface["Groups"]] == [expected]
    for target in template.of("AWS::EFS::MountTarget").values():
        assert [item["Fn::GetAtt"][0] for item in target["SecurityGroups"]] == [groups["files"]]


def test_no_statement_allows_a_wildcard_action_or_every_resource(template: Template) -> None:
    for statement in template.statements():
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert statement["Effect"] == "Allow"
        assert not any("*" in action for action in actions)
        assert statement["Resource"] != "*"


def test_workers_may_signal_their_own_stack_read_the_masters_key_and_no_more(template: Template) -> None:
    profile = template.of("AWS::IAM::InstanceProfile")[
        template.template_of("WorkerGroup")["IamInstanceProfile"]["Arn"]["Fn::GetAtt"][0]
    ]
    (role,) = profile["Roles"]
    policies = [item["PolicyDocument"] for item in template.of("AWS::IAM::Policy").values() if role in item["Roles"]]
    assert [policy["Statement"] for policy in policies] == [
        [
            {"Action": "cloudformation:SignalResource", "Effect": "Allow", "Resource": {"Ref": "AWS::StackId"}},
            {"Action": "ssm:GetParameter", "Effect": "Allow", "Resource": key_arn(template)},
        ]
    ]


def key_arn(template: Template) -> object:
    """Return the ARN of the parameter with the master's key."""
    (name,) = (name for name in template.of("AWS::SSM::Parameter") if name.startswith("RolesAdmittedKey"))
    parts = [{"Ref": "AWS::Partition"}, ":ssm:", {"Ref": "AWS::Region"}, ":", {"Ref": "AWS::AccountId"}]
    return {"Fn::Join": ["", ["arn:", *parts, ":parameter/", {"Ref": name}]]}


def test_no_role_but_the_masters_may_write_the_key_by_which_the_workers_admit_it(template: Template) -> None:
    writing = [item for item in template.statements() if "ssm:PutParameter" in str(item["Action"])]
    own = [item["Action"] for item in writing if item["Resource"] == key_arn(template)]
    assert (own, len(writing)) == (["ssm:PutParameter"], 2), "and what a master leaves to the next one"
    (policy,) = (item for item in template.of("AWS::IAM::Policy").values() if "ssm:PutParameter" in str(item))
    assert [role["Ref"] for role in policy["Roles"]] == [
        role for role in template.of("AWS::IAM::Role") if role.startswith("RolesMaster")
    ]


def test_no_role_but_the_masters_may_use_the_digest_of_what_a_master_leaves(template: Template) -> None:
    (name,) = (name for name in template.of("AWS::SSM::Parameter") if name.startswith("RolesHandover"))
    (policy,) = (item for item in template.of("AWS::IAM::Policy").values() if name in str(item))
    (using,) = (item for item in policy["PolicyDocument"]["Statement"] if name in str(item["Resource"]))
    assert using["Action"] == ["ssm:GetParameter", "ssm:PutParameter"]
    assert using["Resource"]["Fn::Join"][1][-1] == {"Ref": name}
    assert [role["Ref"].startswith("RolesMaster") for role in policy["Roles"]] == [True]


def test_the_master_reads_the_consoles_of_the_clusters_workers_alone(template: Template) -> None:
    (reading,) = (item for item in template.statements() if "Console" in str(item["Action"]))
    assert reading["Condition"] == {
        "StringEquals": {"aws:ResourceTag/deepcdk:cluster": "deepcdk", "aws:ResourceTag/deepcdk:role": "worker"}
    }


def test_the_master_adds_to_the_runs_in_the_run_bucket_and_neither_reads_nor_deletes_there(template: Template) -> None:
    bucket = {"Fn::GetAtt": ["RunBucket", "Arn"]}
    allowed = [item for item in template.statements() if "s3:" in str(item["Action"])]
    assert [(item["Action"], item["Resource"], item.get("Condition")) for item in allowed] == [
        ("s3:PutObject", {"Fn::Join": ["", [bucket, "/runs/*"]]}, None),
        ("s3:ListBucket", bucket, {"StringLike": {"s3:prefix": "runs/*"}}),
    ]


def test_roles_carry_no_managed_policy_and_trust_ec2_alone(template: Template) -> None:
    for role in template.of("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role
        trusted = [statement["Principal"] for statement in role["AssumeRolePolicyDocument"]["Statement"]]
        assert trusted == [{"Service": "ec2.amazonaws.com"}]
