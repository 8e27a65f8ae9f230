"""Queries on a CloudFormation template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

# A rule of a security group: (direction, group, peer, protocol, first port, last port). Groups by logical id.
Rule = tuple[str, str, str, str, int, int]


class Template:
    """Answer the tests' queries on a synthesized template, given as CloudFormation's JSON."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.resources: dict[str, dict[str, Any]] = document["Resources"]

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of every resource of a type, by logical id."""
        return {id: item.get("Properties", {}) for id, item in self.resources.items() if item["Type"] == kind}

    def only(self, kind: str) -> str:
        """Return the logical id of the only resource of a type."""
        (id,) = self.of(kind)
        return id

    def template_of(self, group: str) -> dict[str, Any]:
        """Return the launch template data of an Auto Scaling group."""
        data: dict[str, Any] = self.of("AWS::EC2::LaunchTemplate")[self.template_id_of(group)]["LaunchTemplateData"]
        return data

    def template_id_of(self, group: str) -> str:
        """Return the logical id of the launch template of an Auto Scaling group."""
        properties = self.resources[group]["Properties"]
        mixed = properties.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        specification = properties.get("LaunchTemplate") or mixed["LaunchTemplateSpecification"]
        return str(specification["LaunchTemplateId"]["Ref"])

    def default_route(self, subnet: str) -> str:
        """Return the logical id of the target of a subnet's route to 0.0.0.0/0."""
        tables = [
            item["RouteTableId"]["Ref"]
            for item in self.of("AWS::EC2::SubnetRouteTableAssociation").values()
            if item["SubnetId"] == {"Ref": subnet}
        ]
        targets = [
            (route.get("GatewayId") or route["NatGatewayId"])["Ref"]
            for route in self.of("AWS::EC2::Route").values()
            if route["RouteTableId"]["Ref"] in tables
        ]
        (target,) = targets
        return str(target)

    def subnets_of(self, group: str) -> list[str]:
        """Return the logical ids of the subnets of an Auto Scaling group."""
        return [item["Ref"] for item in self.resources[group]["Properties"]["VPCZoneIdentifier"]]

    def security_rules(self, direction: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each rule of a direction (`in` or `out`) with its security group, including rules inside the group."""
        kind = "SecurityGroupIngress" if direction == "in" else "SecurityGroupEgress"
        for id, group in self.of("AWS::EC2::SecurityGroup").items():
            yield from ((id, rule) for rule in group.get(kind, []))
        for rule in self.of(f"AWS::EC2::{kind}").values():
            yield _group(rule["GroupId"]), rule

    def rules(self) -> set[Rule]:
        """Return every permission of every security group."""
        return {_rule(way, id, rule) for way in ("in", "out") for id, rule in self.security_rules(way)}

    def group_behind(self, description: str) -> str:
        """Return the logical id of the security group with a description."""
        (id,) = (
            id for id, item in self.of("AWS::EC2::SecurityGroup").items() if item["GroupDescription"] == description
        )
        return id

    def statements(self) -> Iterator[dict[str, Any]]:
        """Yield every statement of the identity-based policies."""
        for policy in self.of("AWS::IAM::Policy").values():
            yield from policy["PolicyDocument"]["Statement"]
        for role in self.of("AWS::IAM::Role").values():
            for inline in role.get("Policies", []):
                yield from inline["PolicyDocument"]["Statement"]

    def user_data(self, group: str) -> str:
        """Return the user data of a group's nodes, with references written as ${NAME} and ${NAME.ATTRIBUTE}."""
        joined = self.template_of(group)["UserData"]["Fn::Base64"]["Fn::Join"]
        return str(joined[0]).join(part if isinstance(part, str) else _reference(part) for part in joined[1])

    def text(self) -> str:
        """Return the whole template as text."""
        return json.dumps(self.document)


def _reference(part: dict[str, Any]) -> str:
    return f"${{{part['Ref'] if 'Ref' in part else '.'.join(part['Fn::GetAtt'])}}}"


def _group(reference: dict[str, Any]) -> str:
    return str(reference["Fn::GetAtt"][0])


def _rule(direction: str, group: str, item: dict[str, Any]) -> Rule:
    for key in ("SourceSecurityGroupId", "DestinationSecurityGroupId"):
        if key in item:
            peer = _group(item[key])
            break
    else:
        peer = item.get("SourcePrefixListId") or item["CidrIp"]
    return direction, group, peer, item["IpProtocol"], item.get("FromPort", -1), item.get("ToPort", -1)


def filled(value: Any) -> str:
    """Return a text of the template with a placeholder for each reference, as CloudFormation would fill it in."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        between, parts = value["Fn::Join"]
        return str(between).join(filled(part) for part in parts)
    if "Ref" in value:
        return str(value["Ref"]).replace("::", "-")
    return "arn:" + ".".join(value["Fn::GetAtt"])
