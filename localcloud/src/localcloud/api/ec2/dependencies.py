"""What EC2 does not delete while something uses it: security groups, subnets and VPCs, which moto lets go."""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import DependencyViolationError
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.models.subnets import SubnetBackend
from moto.ec2.models.vpcs import VPCBackend

from localcloud.api.monkeypatch import check_first


def apply() -> None:
    """Correct moto."""
    check_first(SecurityGroupBackend, "_delete_security_group", _check_group)
    check_first(SubnetBackend, "delete_subnet", _check_subnet)
    check_first(VPCBackend, "delete_vpc", _check_vpc)


def _check_group(ec2: Any, vpc_id: str | None, group_id: str) -> None:
    on_interfaces = {group.id for interface in ec2.enis.values() for group in interface.group_set}
    in_rules = {
        rule.source_group.get("GroupId")
        for groups in ec2.groups.values()
        for group in groups.values()
        if group.id != group_id
        for rule in (*group.ingress_rules, *group.egress_rules)
    }
    if group_id in on_interfaces | in_rules:
        raise DependencyViolationError(f"resource {group_id} has a dependent object")


def _check_subnet(ec2: Any, subnet_id: str) -> None:
    if any(interface.subnet.id == subnet_id for interface in ec2.enis.values()):
        raise DependencyViolationError(f"The subnet '{subnet_id}' has dependencies and cannot be deleted.")


def _check_vpc(ec2: Any, vpc_id: str) -> None:
    groups = [group for group in ec2.groups.get(vpc_id, {}).values() if group.name != "default"]
    gateways = [each for each in ec2.internet_gateways.values() if each.vpc is not None and each.vpc.id == vpc_id]
    if groups or gateways:  # moto looks at subnets and route tables itself
        raise DependencyViolationError(f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")
