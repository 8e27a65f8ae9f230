"""Invalid descriptions of security groups and their rules are rejected as by EC2, without any change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client, Stacks, network
from refusals.templates import resource

ALLOWED = "azAZ09. _-:/()#,@[]+=&;{}!$*"
REFUSED = [*"'\"<>%?|`~^\\\n\t", "→", "é", "中"]
RULE = "Invalid rule description. Valid descriptions are strings less than 256 characters from the following set:  "
GROUP = "Invalid security group description. Valid descriptions are strings less than 256 characters"


@pytest.fixture
def group(client: Client) -> Iterator[str]:
    """Return the id of a security group without rules for incoming traffic."""
    ec2 = client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    id: str = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    yield id
    ec2.delete_security_group(GroupId=id)
    ec2.delete_vpc(VpcId=vpc)


def permission(**source: Any) -> dict[str, Any]:
    return {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **source}


def from_network(description: str, cidr: str = "198.18.0.0/24") -> dict[str, Any]:
    return permission(IpRanges=[{"CidrIp": cidr, "Description": description}])


def rules(client: Client, group: str) -> list[dict[str, Any]]:
    found = client("ec2").describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [group]}])
    return [rule for rule in found["SecurityGroupRules"] if not rule["IsEgress"]]


def refusal(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, str]:
    told = error.value.response["Error"]
    return told["Code"], told["Message"]


@pytest.mark.parametrize("description", [ALLOWED, "a" * 255, ""])
def test_rule_description_accepts_255_characters_of_the_set(client: Client, group: str, description: str) -> None:
    client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=[from_network(description)])
    (rule,) = rules(client, group)
    assert rule.get("Description", "") == description


@pytest.mark.parametrize("description", [*(f"Ranks to Horovod{each}s launcher" for each in REFUSED), "a" * 256])
def test_other_rule_descriptions_are_rejected_with_ec2_message(client: Client, group: str, description: str) -> None:
    with pytest.raises(ClientError) as caught:
        client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=[from_network(description)])
    code, message = refusal(caught)
    assert code == "InvalidParameterValue"
    assert message.startswith(RULE)
    assert rules(client, group) == []


@pytest.mark.parametrize(
    "source",
    [
        {"IpRanges": [{"CidrIp": "198.18.0.0/24", "Description": "it's"}]},
        {"Ipv6Ranges": [{"CidrIpv6": "2001:db8::/32", "Description": "it's"}]},
        {"UserIdGroupPairs": [{"GroupId": "itself", "Description": "it's"}]},
        {"PrefixListIds": [{"PrefixListId": "pl-0123456789abcdef0", "Description": "it's"}]},
    ],
    ids=["network", "IPv6 network", "group", "prefix list"],
)
@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_each_kind_of_source_is_read_in_both_directions(
    client: Client, group: str, source: dict[str, Any], direction: str
) -> None:
    for pair in source.get("UserIdGroupPairs", ()):
        pair["GroupId"] = group
    authorize = getattr(client("ec2"), f"authorize_security_group_{direction}")
    with pytest.raises(ClientError, match="Invalid rule description"):
        authorize(GroupId=group, IpPermissions=[permission(**source)])


def test_existing_rule_cannot_get_invalid_description(client: Client, group: str) -> None:
    ec2 = client("ec2")
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[from_network("fine")])
    with pytest.raises(ClientError, match="Invalid rule description"):
        ec2.update_security_group_rule_descriptions_ingress(GroupId=group, IpPermissions=[from_network("it's")])
    (rule,) = rules(client, group)
    changed = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIpv4": "198.18.0.0/24", "Description": "it's"}
    with pytest.raises(ClientError, match="Invalid rule description"):
        ec2.modify_security_group_rules(
            GroupId=group,
            SecurityGroupRules=[{"SecurityGroupRuleId": rule["SecurityGroupRuleId"], "SecurityGroupRule": changed}],
        )
    assert [each["Description"] for each in rules(client, group)] == ["fine"]


@pytest.mark.parametrize(
    ("description", "said"),
    [
        ("Horovod's", GROUP),
        ("a" * 256, GROUP),
        (
            "master → workers",
            "Value (master → workers) for parameter GroupDescription is invalid. "
            "Character sets beyond ASCII are not supported.",
        ),
    ],
)
def test_group_with_invalid_description_is_rejected(client: Client, group: str, description: str, said: str) -> None:
    ec2 = client("ec2")
    vpc = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"][0]["VpcId"]
    with pytest.raises(ClientError) as caught:
        ec2.create_security_group(GroupName="other", Description=description, VpcId=vpc)
    code, message = refusal(caught)
    assert code == "InvalidParameterValue"
    assert message.startswith(said)


def standalone(description: str) -> dict[str, Any]:
    source = {"CidrIp": "198.18.0.0/24", "IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    properties = {"GroupId": {"Fn::GetAtt": ["Group", "GroupId"]}, **source, "Description": description}
    return {"Rule": resource("EC2::SecurityGroupIngress", **properties)}


def test_group_with_rejected_rule_leaves_nothing_behind(client: Client, stacks: Stacks) -> None:
    resources = network()
    rule = {"CidrIp": "198.18.0.0/24", "IpProtocol": "-1", "Description": "it's"}
    resources["Group"]["Properties"]["SecurityGroupIngress"] = [rule]
    name = stacks.create(resources)
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    tag = {"Name": "tag:aws:cloudformation:stack-name", "Values": [name]}
    assert client("ec2").describe_security_groups(Filters=[tag])["SecurityGroups"] == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (permission(IpRanges=[{"CidrIp": "198.18.0.0/24"}]), "198.18.0.0/24, TCP, from port: 22, to port: 22"),
        ({"IpProtocol": "-1", "IpRanges": [{"CidrIp": "198.18.1.0/24"}]}, "198.18.1.0/24, ALL"),
        (
            {"IpProtocol": "udp", "FromPort": 1, "ToPort": 9, "IpRanges": [{"CidrIp": "198.18.2.0/24"}]},
            "198.18.2.0/24, UDP, from port: 1, to port: 9",
        ),
    ],
)
def test_duplicate_rule_is_reported(client: Client, group: str, rule: dict[str, Any], text: str) -> None:
    other = from_network("another", cidr="198.18.9.0/24")
    client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
    with pytest.raises(ClientError) as caught:
        client("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=[other, rule])
    error = caught.value.response["Error"]
    assert error == {
        "Code": "InvalidPermission.Duplicate",
        "Message": f'the specified rule "peer: {text}, ALLOW" already exists',
    }
    assert len(rules(client, group)) == 1


def test_duplicate_rule_for_group_is_reported_with_group(client: Client, group: str) -> None:
    rule = permission(UserIdGroupPairs=[{"GroupId": group}])
    client("ec2").authorize_security_group_egress(GroupId=group, IpPermissions=[rule])
    with pytest.raises(ClientError, match=f'"peer: {group}, TCP, from port: 22, to port: 22, ALLOW" already exists'):
        client("ec2").authorize_security_group_egress(GroupId=group, IpPermissions=[rule])
