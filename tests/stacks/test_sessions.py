"""Who Session Manager leads to: the master alone, with the least that its agent needs."""

from __future__ import annotations

from collections.abc import Callable

from stacks.sessions import AGENT_ACTIONS
from tests.stacks.clusters.template import Template

NO_SSH = {"ssh_access": "session-manager", "ssh_cidr": ()}


def test_the_masters_role_alone_may_be_reached(synthesise: Callable[..., Template]) -> None:
    template = synthesise(**NO_SSH)
    profile = template.template_of("MasterGroup")["IamInstanceProfile"]["Arn"]["Fn::GetAtt"][0]
    (role,) = template.of("AWS::IAM::InstanceProfile")[profile]["Roles"]
    holders = [policy["Roles"] for policy in template.of("AWS::IAM::Policy").values() if "ssmmessages" in str(policy)]
    assert holders == [[role]]


def test_the_agent_may_do_what_aws_names_and_no_more(synthesise: Callable[..., Template]) -> None:
    (statement,) = [found for found in synthesise(**NO_SSH).statements() if "ssmmessages" in str(found["Action"])]
    assert set(statement["Action"]) == set(AGENT_ACTIONS)
    assert statement["Resource"] == "*"


def test_with_an_open_port_no_role_knows_session_manager(template: Template) -> None:
    assert "ssmmessages" not in template.text()
    assert template.document["Outputs"]["SshAccess"]["Value"] == "port"
