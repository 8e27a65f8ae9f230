"""Roles that the committed templates do not show."""

from __future__ import annotations

from collections.abc import Callable

from stacks.node_roles import AGENT_ACTIONS
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template


def test_session_manager_opens_no_port_and_reaches_only_the_master(
    inspected: Callable[[str], Inspected], template: Template
) -> None:
    closed = inspected("no SSH").template
    assert closed.group_behind("Nothing from outside")
    assert closed.subnets_of("MasterGroup") == closed.subnets_of("WorkerGroup")
    (interface,) = closed.template_of("MasterGroup")["NetworkInterfaces"]
    assert interface["AssociatePublicIpAddress"] is False
    (statement,) = [found for found in closed.statements() if "ssmmessages" in str(found["Action"])]
    assert (set(statement["Action"]), statement["Resource"]) == (set(AGENT_ACTIONS), "*")
    (policy,) = [each for each in closed.of("AWS::IAM::Policy").values() if "ssmmessages" in str(each)]
    assert [role["Ref"].startswith("RolesMaster") for role in policy["Roles"]] == [True]
    assert "ssmmessages" not in template.text()
