"""Resource types of security groups and their rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localcloud.api.cloudformation.errors import ResourceError
from localcloud.api.cloudformation.types.resource_type import (
    DESCRIPTION,
    Context,
    Create,
    Physical,
    Properties,
    ResourceType,
    delete_with,
    names,
    retag,
)

_GONE = ("InvalidGroup.NotFound", "InvalidGroupId.NotFound", "InvalidSecurityGroupRuleId.NotFound")
_RULE = "IpProtocol FromPort ToPort CidrIp"


def permission(rule: Properties) -> dict[str, Any]:
    """Convert a template's rule to an item of IpPermissions in EC2's API."""
    found: dict[str, Any] = {"IpProtocol": str(rule["IpProtocol"])}
    for key in ("FromPort", "ToPort"):
        if key in rule:
            found[key] = int(rule[key])
    described = {"Description": rule["Description"]} if "Description" in rule else {}
    if "CidrIp" in rule:
        found["IpRanges"] = [{"CidrIp": rule["CidrIp"], **described}]
    for key in ("SourcePrefixListId", "DestinationPrefixListId"):
        if key in rule:
            found["PrefixListIds"] = [{"PrefixListId": rule[key], **described}]
    for key in ("SourceSecurityGroupId", "DestinationSecurityGroupId"):
        if key in rule:
            found["UserIdGroupPairs"] = [{"GroupId": rule[key], **described}]
    return found


def _create_group(context: Context, properties: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    group_id = ec2.create_security_group(
        GroupName=properties.get("GroupName") or context.name(),
        Description=properties["GroupDescription"],
        VpcId=properties["VpcId"],
        TagSpecifications=[{"ResourceType": "security-group", "Tags": context.tags(properties.get("Tags"))}],
    )["GroupId"]
    physical = Physical(id=group_id, attributes={"GroupId": group_id, "VpcId": properties["VpcId"]})
    context.report(physical)
    egress = properties.get("SecurityGroupEgress") or []
    if egress:
        # A new group allows all outgoing traffic. The template's egress rules replace this default rule.
        everything = permission({"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"})
        ec2.revoke_security_group_egress(GroupId=group_id, IpPermissions=[everything])
    _authorize(ec2, group_id, properties.get("SecurityGroupIngress") or [], egress)
    return physical


def _authorize(ec2: Any, group_id: str, ingress: Iterable[Properties], egress: Iterable[Properties]) -> None:
    ingress, egress = list(ingress), list(egress)
    _check_prefix_lists(ec2, (*ingress, *egress))
    for rule in ingress:
        ec2.authorize_security_group_ingress(GroupId=group_id, IpPermissions=[permission(rule)])
    for rule in egress:
        ec2.authorize_security_group_egress(GroupId=group_id, IpPermissions=[permission(rule)])


def _check_prefix_lists(ec2: Any, rules: Iterable[Properties]) -> None:
    """Raise ResourceError for a prefix list that does not exist, as AWS does. moto accepts any."""
    for rule in rules:
        id = rule.get("SourcePrefixListId") or rule.get("DestinationPrefixListId")
        if id and not ec2.describe_managed_prefix_lists(PrefixListIds=[id])["PrefixLists"]:
            raise ResourceError(f"The prefix list ID '{id}' does not exist")


def _update_group(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    group_id = resource.id
    everything = [{"IpProtocol": "-1", "CidrIp": "0.0.0.0/0"}]
    before_in, after_in = old.get("SecurityGroupIngress") or [], new.get("SecurityGroupIngress") or []
    before_out = old.get("SecurityGroupEgress") or everything
    after_out = new.get("SecurityGroupEgress") or everything
    for rule in before_in:
        if rule not in after_in:
            ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=[permission(rule)])
    for rule in before_out:
        if rule not in after_out:
            ec2.revoke_security_group_egress(GroupId=group_id, IpPermissions=[permission(rule)])
    _authorize(
        ec2,
        group_id,
        [rule for rule in after_in if rule not in before_in],
        [rule for rule in after_out if rule not in before_out],
    )
    retag(ec2, group_id, context, old, new)
    return resource


def _create_rule(side: str) -> Create:
    """Return the handler that creates a standalone rule, for `ingress` or `egress`."""

    def create(context: Context, properties: Properties) -> Physical:
        ec2 = context.aws.client("ec2")
        _check_prefix_lists(ec2, [properties])
        authorize = getattr(ec2, f"authorize_security_group_{side}")
        answer = authorize(GroupId=properties["GroupId"], IpPermissions=[permission(properties)])
        rule_id = answer["SecurityGroupRules"][0]["SecurityGroupRuleId"]
        return Physical(id=rule_id, attributes={"Id": rule_id})

    return create


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EC2::SecurityGroup",
        named_by="GroupName",
        honoured=names("GroupName VpcId Tags")
        | names(f"{_RULE} SourceSecurityGroupId SourcePrefixListId", below="SecurityGroupIngress")
        | names(f"{_RULE} DestinationSecurityGroupId DestinationPrefixListId", below="SecurityGroupEgress"),
        inert={
            "GroupDescription": DESCRIPTION,
            "SecurityGroupIngress.Description": DESCRIPTION,
            "SecurityGroupEgress.Description": DESCRIPTION,
        },
        replaced_by=names("GroupName GroupDescription VpcId"),
        attributes=names("GroupId VpcId"),
        create=_create_group,
        update=_update_group,
        delete=delete_with("ec2", "delete_security_group", "GroupId", gone=_GONE),
    ),
    ResourceType(
        name="AWS::EC2::SecurityGroupIngress",
        honoured=names(f"{_RULE} GroupId SourceSecurityGroupId SourcePrefixListId"),
        inert={"Description": DESCRIPTION},
        attributes=names("Id"),
        create=_create_rule("ingress"),
        delete=delete_with("ec2", "revoke_security_group_ingress", "SecurityGroupRuleIds", "GroupId", gone=_GONE),
    ),
    ResourceType(
        name="AWS::EC2::SecurityGroupEgress",
        honoured=names(f"{_RULE} GroupId DestinationSecurityGroupId DestinationPrefixListId"),
        inert={"Description": DESCRIPTION},
        attributes=names("Id"),
        create=_create_rule("egress"),
        delete=delete_with("ec2", "revoke_security_group_egress", "SecurityGroupRuleIds", "GroupId", gone=_GONE),
    ),
)
