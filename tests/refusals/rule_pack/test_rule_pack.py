"""cdk-preflight's rules are applied at synth: some violations are found, and their valid counterparts are not."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.refusals.case import Case, Template
from tests.refusals.rule_pack.engine import findings
from tests.refusals.templates import arn_of, network, only, ref, resource, template, trust


def _rule(description: str) -> Template:
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "198.18.0.0/24", "Description": description}
    return only("EC2::SecurityGroup", GroupDescription="nodes", SecurityGroupIngress=[rule])


def _flow_log(**properties: Any) -> Template:
    log = {"ResourceType": "VPC", "ResourceId": ref("Vpc"), "TrafficType": "ALL", **properties}
    role = resource("IAM::Role", AssumeRolePolicyDocument=trust(Service="vpc-flow-logs.amazonaws.com"))
    vpc = resource("EC2::VPC", CidrBlock="10.0.0.0/16")
    return template(Vpc=vpc, Role=role, Logs=resource("Logs::LogGroup"), It=resource("EC2::FlowLog", **log))


def _mount(*groups: str) -> Template:
    given = {"FileSystemId": ref("Files"), "SubnetId": ref("A"), "SecurityGroups": list(groups)}
    return network(Files=resource("EFS::FileSystem"), Target=resource("EFS::MountTarget", **given))


LOGS: Final = {"LogDestinationType": "cloud-watch-logs", "LogGroupName": ref("Logs")}
GROUPS: Final = tuple(f"sg-0123456789abcdef{number}" for number in range(6))
CASES: Final = (
    Case(
        "security group",
        _rule("Ranks to Horovod's launcher"),
        "pf-ec2-sg-rule-description",
        _rule("Ranks to the launcher of Horovod"),
    ),
    Case(
        "flow log",
        _flow_log(**LOGS),
        "pf-ec2-flow-log-destination-config",
        _flow_log(**LOGS, DeliverLogsPermissionArn=arn_of("Role")),
    ),
    Case("mount target", _mount(*GROUPS), "pf-efs-mount-target-network", _mount(*GROUPS[:5])),
)


@pytest.fixture(scope="module")
def found() -> list[list[str]]:
    """Return what is found in each violation and its valid counterpart, in one synthesis."""
    return findings([template for case in CASES for template in (case.violation, case.sound)])


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=map(str, CASES))
def test_the_violation_is_found_and_its_valid_counterpart_is_not(
    number: int, case: Case[Template], found: list[list[str]]
) -> None:
    assert case.said in found[2 * number]
    assert found[2 * number + 1] == []
