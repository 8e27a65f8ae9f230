"""Security group requests that EC2 rejects: descriptions, duplicate or too many rules, and deletions of used groups.

moto accepts any description and any number of rules, and deletes security groups, subnets and VPCs that are in use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from moto.ec2.exceptions import (
    DependencyViolationError,
    EC2ClientError,
    InvalidPermissionDuplicateError,
    RulesPerSecurityGroupLimitExceededError,
)
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.models.subnets import SubnetBackend
from moto.ec2.models.vpcs import VPCBackend
from moto.ec2.responses.security_groups import SecurityGroups

from localcloud.api.monkeypatch import around, first

# AWS's rule, in the words of its own message. DescribeSecurityGroups' documentation lists the same characters.
_VALID: Final = re.compile(r"[a-zA-Z0-9. _\-:/()#,@\[\]+=&;{}!$*]{0,255}")
_MAX_RULES: Final = 60
"""Default of the quota "Inbound or outbound rules per security group"."""
_SET: Final = (
    "Valid descriptions are strings less than 256 characters from the following set:  a-zA-Z0-9. _-:/()#,@[]+=&;{}!$*"
)
_ACTIONS_ON_RULES: Final = (
    "authorize_security_group_ingress",
    "authorize_security_group_egress",
    "modify_security_group_rules",
    "update_security_group_rule_descriptions_ingress",
    "update_security_group_rule_descriptions_egress",
)


@around(SecurityGroupBackend, "authorize_security_group_ingress", "authorize_security_group_egress")
def _name_duplicates(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Authorize rules. The error for a duplicate rule describes the rule, as in EC2.

    moto creates rules one by one and stops at the duplicate.
    """
    made = self._iterate_security_rules
    rules: list[Any] = []

    def noted(*given: Any, **more: Any) -> Iterator[Any]:
        for rule in made(*given, **more):
            rules.append(rule)
            yield rule

    self._iterate_security_rules = noted
    try:
        return original(self, *args, **kwargs)
    except InvalidPermissionDuplicateError:
        text = f'the specified rule "{_rule_text(rules[-1])}" already exists'
        raise EC2ClientError("InvalidPermission.Duplicate", text) from None
    finally:
        del self._iterate_security_rules


def _rule_text(rule: Any) -> str:
    """Return a rule in the form of EC2's errors: `peer: sg-0123, TCP, from port: 22, to port: 22, ALLOW`.

    Source: EC2's messages in hashicorp/terraform issue 1874 (groups), terraform-aws-security-group issue 351
    (networks), lucidsoftware/cumulus issue 101 (all traffic), ansible-modules-core pull request 3258 (other protocols).
    """
    peer = rule.ip_range.get("CidrIp") or rule.ip_range.get("CidrIpv6") or rule.prefix_list_id
    peer = peer or rule.source_group.get("GroupId", "")
    if rule.ip_protocol == "-1":
        return f"peer: {peer}, ALL, ALLOW"
    if rule.ip_protocol not in ("tcp", "udp"):
        return f"peer: {peer}, protocol: {rule.ip_protocol}, ALLOW"
    return f"peer: {peer}, {rule.ip_protocol.upper()}, from port: {rule.from_port}, to port: {rule.to_port}, ALLOW"


@first(SecurityGroups, "create_security_group")
def _check_description(responses: Any) -> None:
    """Raise EC2's error for an invalid group description."""
    description = str(responses._get_params().get("Description", ""))
    if not description.isascii():
        raise _invalid(
            f"Value ({description}) for parameter GroupDescription is invalid. "
            "Character sets beyond ASCII are not supported."
        )
    if not _VALID.fullmatch(description):
        raise _invalid(f"Invalid security group description. {_SET}")


@first(SecurityGroups, *_ACTIONS_ON_RULES)
def _check_rules(responses: Any) -> None:
    """Raise EC2's error for an invalid rule description."""
    if not all(_VALID.fullmatch(description) for description in _descriptions(responses._get_params())):
        raise _invalid(f"Invalid rule description. {_SET}")


def _descriptions(value: Any) -> Iterator[str]:
    """Yield each `Description` at any depth of a request's parameters, because each source of a rule has one."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from [str(each)] if key == "Description" else _descriptions(each)
    elif isinstance(value, list):
        for each in value:
            yield from _descriptions(each)


def _invalid(message: str) -> EC2ClientError:
    return EC2ClientError("InvalidParameterValue", message)


@first(SecurityGroupBackend, "authorize_security_group_ingress")
def _check_ingress(ec2: Any, group_name_or_id: str, *_: Any, **given: Any) -> None:
    _check_count(ec2, group_name_or_id, "ingress_rules", given)


@first(SecurityGroupBackend, "authorize_security_group_egress")
def _check_egress(ec2: Any, group_name_or_id: str, *_: Any, **given: Any) -> None:
    _check_count(ec2, group_name_or_id, "egress_rules", given)


def _check_count(ec2: Any, group_name_or_id: str, rules: str, given: dict[str, Any]) -> None:
    """Raise EC2's error if a call would give a group too many rules.

    `rules` is the group's attribute with its present rules. `given` contains the call's new rules.
    """
    group = ec2.get_security_group_by_name_or_id(group_name_or_id, given.get("vpc_id"))
    if group is None:
        return
    held = sum(_weight(ec2, rule.prefix_list_id) for rule in getattr(group, rules))
    lists = sum(_weight(ec2, each["PrefixListId"]) for each in given.get("prefix_list_ids") or ())
    others = sum(len(given.get(name) or ()) for name in ("ip_ranges", "source_groups"))
    if held + lists + others > _MAX_RULES:
        raise RulesPerSecurityGroupLimitExceededError


def _weight(ec2: Any, prefix_list: str | None) -> int:
    """Return the number of rules that a rule counts as: the MaxEntries of its prefix list, or 1 without a list.

    AWS's own lists also count as 1, because moto does not know them.
    """
    found = ec2.managed_prefix_lists.get(prefix_list) if prefix_list else None
    return int(found.max_entries or 1) if found is not None else 1


@first(SecurityGroupBackend, "_delete_security_group")
def _check_users(ec2: Any, vpc_id: str | None, group_id: str) -> None:
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


@first(SubnetBackend, "delete_subnet")
def _check_subnet(ec2: Any, subnet_id: str) -> None:
    if any(interface.subnet.id == subnet_id for interface in ec2.enis.values()):
        raise DependencyViolationError(f"The subnet '{subnet_id}' has dependencies and cannot be deleted.")


@first(VPCBackend, "delete_vpc")
def _check_vpc(ec2: Any, vpc_id: str) -> None:
    groups = [group for group in ec2.groups.get(vpc_id, {}).values() if group.name != "default"]
    gateways = [each for each in ec2.internet_gateways.values() if each.vpc is not None and each.vpc.id == vpc_id]
    if groups or gateways:  # moto checks subnets and route tables itself
        raise DependencyViolationError(f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")
