"""The parts of moto's state that a snapshot contains."""

from __future__ import annotations

from typing import Any

from api.templates import Client, Stacks, network
from localcloud.api.cloud import Cloud

OFFICES = ("198.18.4.0/24", "198.18.5.7/32")


def entries(*cidrs: str) -> list[dict[str, str]]:
    return [{"Cidr": cidr, "Description": "an office"} for cidr in cidrs]


def prefix_list(client: Client, *cidrs: str) -> str:
    made = client("ec2").create_managed_prefix_list(
        PrefixListName="offices", MaxEntries=5, AddressFamily="IPv4", Entries=entries(*cidrs)
    )
    return str(made["PrefixList"]["PrefixListId"])


def guarded(prefix_list_id: str) -> dict[str, Any]:
    resources = network()
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "SourcePrefixListId": prefix_list_id}
    resources["Group"]["Properties"]["SecurityGroupIngress"] = [rule]
    return resources


def sources(cloud: Cloud, group_id: str) -> set[str]:
    (group,) = [group for group in cloud.snapshot().security_groups if group.id == group_id]
    return {cidr for rule in group.ingress for cidr in rule.cidrs}


def test_rule_allows_current_networks_of_prefix_list(cloud: Cloud, client: Client, stacks: Stacks) -> None:
    id = prefix_list(client, *OFFICES)
    name = stacks.create(guarded(id))
    group = stacks.physical(name, "Group")
    assert sources(cloud, group) == set(OFFICES)
    client("ec2").modify_managed_prefix_list(
        PrefixListId=id, CurrentVersion=1, AddEntries=entries("198.18.6.0/24"), RemoveEntries=[{"Cidr": OFFICES[0]}]
    )
    assert sources(cloud, group) == {OFFICES[1], "198.18.6.0/24"}


def test_missing_prefix_list_fails_stack(client: Client, stacks: Stacks) -> None:
    name = stacks.create(guarded("pl-0123456789abcdef0"))
    assert stacks.describe(name)["StackStatus"] == "ROLLBACK_COMPLETE"
    assert any("'pl-0123456789abcdef0' does not exist" in reason for reason in stacks.reasons(name, "Group"))
