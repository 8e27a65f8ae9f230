"""Security groups and roles that the committed templates do not show."""

from __future__ import annotations

from collections.abc import Callable

from stacks.config import SSH_PORT
from stacks.grants import AGENT_ACTIONS
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import VARIANTS, Variant


def sources(template: Template) -> set[str]:
    """Return all networks and prefix lists that may connect."""
    return {rule[2] for rule in template.rules() if rule[0] == "in" and ("/" in rule[2] or rule[2].startswith("pl-"))}


def test_ssh_is_open_to_the_given_networks_or_prefix_lists_only(variant: Variant) -> None:
    assert sources(variant("own images")) == set(VARIANTS["own images"]["ssh_cidr"])
    lists = variant("borrowed")
    assert sources(lists) == set(VARIANTS["borrowed"]["ssh_prefix_lists"])
    master = lists.group_behind("SSH from ssh_cidr")
    assert {rule[3:] for rule in lists.rules() if rule[:2] == ("in", master) and rule[2] in sources(lists)} == {
        ("tcp", SSH_PORT, SSH_PORT)
    }


def test_without_a_source_ssh_is_open_to_no_network(variant: Variant, template: Template) -> None:
    closed = variant("temporary")
    assert sources(closed) == set()
    # Changing a group's description would replace the group. Therefore a group keeps it even if it gets a source later.
    assert closed.group_behind("SSH from ssh_cidr") == template.group_behind("SSH from ssh_cidr")


def test_with_session_manager_nothing_is_admitted_and_the_master_alone_is_reached(
    inspected: Callable[[str], Inspected], template: Template
) -> None:
    closed = inspected("no SSH").template
    assert sources(closed) == set()
    assert closed.group_behind("Nothing from outside")
    assert closed.subnets_of("MasterGroup") == closed.subnets_of("WorkerGroup")
    (interface,) = closed.template_of("MasterGroup")["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is False
    (statement,) = [found for found in closed.statements() if "ssmmessages" in str(found["Action"])]
    assert (set(statement["Action"]), statement["Resource"]) == (set(AGENT_ACTIONS), "*")
    (policy,) = [each for each in closed.of("AWS::IAM::Policy").values() if "ssmmessages" in str(each)]
    assert [role["Ref"].startswith("RolesMaster") for role in policy["Roles"]] == [True]
    assert "ssmmessages" not in template.text()


def test_the_master_admits_no_worker_and_workers_admit_it_to_ssh_alone(template: Template) -> None:
    master, workers = map(template.group_behind, ("SSH from ssh_cidr", "Each other and the master"))
    found = {
        pair: [rule[3:] for rule in template.rules() if rule[:3] == ("in", *pair)]
        for pair in ((master, workers), (workers, master))
    }
    assert found == {(master, workers): [], (workers, master): [("tcp", SSH_PORT, SSH_PORT)]}


def test_roles_trust_ec2_alone(template: Template) -> None:
    for role in template.of("AWS::IAM::Role").values():
        trusted = [statement["Principal"] for statement in role["AssumeRolePolicyDocument"]["Statement"]]
        assert trusted == [{"Service": "ec2.amazonaws.com"}]
