"""Rules that bind several values of the network."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.validation import check
from stacks.validation.network import cautions

EXISTING = {
    "ssh_cidr": "198.18.0.7/32",
    "vpc_id": "vpc-0123456789abcdef0",
    "vpc_cidr": "10.4.0.0/20",
    "public_subnet_ids": "subnet-0aaaaaaaaaaaaaaa1",
    "private_subnet_ids": "subnet-0bbbbbbbbbbbbbbb1",
}


def keys(**values: Any) -> list[str]:
    config = ClusterConfig.from_context({"cluster": values})
    return [problem.key for problem in check(config)]


def test_an_existing_vpc_with_its_subnets_has_no_problem() -> None:
    assert keys(**EXISTING) == []
    assert keys(**{**EXISTING, "ssh_access": "session-manager", "ssh_cidr": "", "public_subnet_ids": ""}) == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"private_subnet_ids": ""}, ["private_subnet_ids"]),
        ({"availability_zones": 2}, ["private_subnet_ids"]),
        ({"public_subnet_ids": ""}, ["public_subnet_ids"]),
        ({"ssh_access": "session-manager", "ssh_cidr": ""}, ["public_subnet_ids"]),
        ({"private_subnet_ids": "subnet-0aaaaaaaaaaaaaaa1"}, ["private_subnet_ids"]),
        ({"nat_gateways": "one-per-zone"}, ["nat_gateways"]),
        ({"zones": "us-east-1a"}, ["zones"]),
        ({"vpc_endpoints": "s3,ssm"}, ["vpc_endpoints"]),
        ({"vpc_endpoints": "logs"}, ["vpc_endpoints"]),
        ({"vpc_endpoints": "s3"}, []),
        ({"vpc_endpoints": ""}, []),
        ({"vpc_id": ""}, ["public_subnet_ids", "private_subnet_ids"]),
        ({"ssh_cidr": "10.4.1.0/24"}, ["vpc_cidr"]),
    ],
)
def test_keys_of_an_existing_vpc_go_together(changed: dict[str, Any], expected: list[str]) -> None:
    assert keys(**{**EXISTING, **changed}) == expected


def test_nobody_guesses_how_many_workers_an_existing_subnet_holds() -> None:
    assert keys(**EXISTING, max_workers=1000) == []


def test_session_manager_and_open_networks_exclude_each_other() -> None:
    given = {"ssh_access": "session-manager", "ssh_cidr": "198.18.0.7/32", "ssh_prefix_lists": "pl-0123456789abcdef0"}
    assert keys(**given) == ["ssh_cidr", "ssh_prefix_lists"]


def test_each_network_that_lies_in_the_vpc_is_told() -> None:
    assert keys(ssh_cidr="10.0.0.9/32,198.18.0.7/32,10.0.1.0/24") == ["vpc_cidr", "vpc_cidr"]


@pytest.mark.parametrize(("zones", "room"), [(1, 58), (2, 116)])
def test_workers_fill_the_private_subnets_less_the_addresses_that_others_take(zones: int, room: int) -> None:
    """A quarter of a /24 has 64 addresses: AWS takes five of each subnet, and the file system one."""
    given = {"ssh_cidr": "198.18.0.7/32", "vpc_cidr": "10.0.0.0/24", "availability_zones": zones}
    assert keys(**given, max_workers=room) == []
    (problem,) = check(ClusterConfig.from_context({"cluster": {**given, "max_workers": room + 1}}))
    assert (problem.key, problem.value) == ("max_workers", room + 1)
    assert f"10.0.0.0/24 hold {room} workers at most" in problem.rule
    assert f"max_workers to {room} or less" in problem.remedy


def test_a_cluster_that_nobody_can_reach_is_cautioned_against() -> None:
    (problem,) = cautions(ClusterConfig())
    assert (problem.key, problem.value) == ("ssh_cidr", ())
    assert problem.remedy.startswith("set ssh_cidr to the network from which you connect")
    assert problem.remedy.endswith("or ssh_access = session-manager")
    assert not list(cautions(ClusterConfig(ssh_cidr=("198.18.0.7/32",))))


def test_a_confirmed_whole_internet_does_not_clash_with_the_vpc() -> None:
    assert keys(ssh_cidr="0.0.0.0/0", ssh_from_anywhere=True) == []


VPC = "vpc-0123456789abcdef0"
PUBLIC, PRIVATE = EXISTING["public_subnet_ids"], EXISTING["private_subnet_ids"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"ssh_cidr": "198.18.0.7/32", "public_subnet_ids": PUBLIC},
            (
                (PUBLIC,),
                "are subnets of an existing VPC, and vpc_id names none",
                "set vpc_id too, or leave public_subnet_ids out",
            ),
        ),
        (
            {**EXISTING, "availability_zones": 2},
            (
                (PRIVATE,),
                "must be one for each of availability_zones (2), where the workers and the file system's mount targets "
                "are",
                "list one private subnet of vpc_id for each zone, or set availability_zones to their number",
            ),
        ),
        (
            {**EXISTING, "public_subnet_ids": ""},
            (
                (),
                f"missing: the master, which is reached at its SSH port, needs a public subnet of {VPC}",
                "list one, or set ssh_access = session-manager, which needs none",
            ),
        ),
        (
            {**EXISTING, "ssh_access": "session-manager", "ssh_cidr": ""},
            (
                (PUBLIC,),
                "nothing would be in them: with ssh_access = session-manager the master is in a private subnet",
                "leave them out",
            ),
        ),
        (
            {**EXISTING, "private_subnet_ids": PUBLIC},
            (
                (PUBLIC,),
                f"{PUBLIC} is in public_subnet_ids too: a subnet is either public or private",
                "list it once",
            ),
        ),
        (
            {**EXISTING, "vpc_endpoints": "ssm"},
            (
                ("ssm",),
                f"{VPC} has its own endpoints: a second one of a service would clash with the first",
                "leave vpc_endpoints out, and add to the VPC what it lacks",
            ),
        ),
        (
            {**EXISTING, "nat_gateways": "one-per-zone"},
            (
                "one-per-zone",
                f"{VPC} has its own routes: no NAT gateway is made in an existing VPC",
                "leave nat_gateways out",
            ),
        ),
        (
            {"ssh_access": "session-manager", "ssh_cidr": "198.18.0.7/32"},
            (
                ("198.18.0.7/32",),
                "with ssh_access = session-manager no port is open to any network",
                "leave ssh_cidr out; on a command line: --set ssh_cidr=",
            ),
        ),
        (
            {"ssh_cidr": "10.0.0.9/32"},
            (
                "10.0.0.0/16",
                "overlaps ssh_cidr 10.0.0.9/32: the master would look for you inside the VPC",
                "set another private network, such as 10.64.0.0/16, or the public address from which you connect",
            ),
        ),
        (
            {"ssh_cidr": "198.18.0.7/32", "vpc_cidr": "10.0.0.0/24", "max_workers": 59},
            (
                59,
                "the private subnets of vpc_cidr 10.0.0.0/24 hold 58 workers at most",
                "set max_workers to 58 or less, or a wider vpc_cidr (a /16 at most)",
            ),
        ),
    ],
)
def test_a_problem_says_what_is_wrong_and_what_to_set(values: dict[str, Any], expected: tuple[Any, str, str]) -> None:
    (problem,) = check(ClusterConfig.from_context({"cluster": values}))
    assert (problem.value, problem.rule, problem.remedy) == expected


def test_the_caution_names_the_port_that_is_open_to_nobody() -> None:
    (problem,) = cautions(ClusterConfig())
    assert problem.rule == (
        "empty, as ssh_prefix_lists is: the SSH port is open to no network, and no task reaches the master"
    )
    assert problem.remedy == (
        "set ssh_cidr to the network from which you connect, such as your own address as a /32, "
        "or ssh_access = session-manager"
    )


def test_all_subnets_that_are_in_both_lists_are_named_in_order() -> None:
    both = "subnet-0bbbbbbbbbbbbbbb1,subnet-0aaaaaaaaaaaaaaa1"
    given = {**EXISTING, "availability_zones": 2, "public_subnet_ids": both, "private_subnet_ids": both}
    (problem,) = check(ClusterConfig.from_context({"cluster": given}))
    assert problem.rule.startswith("subnet-0aaaaaaaaaaaaaaa1, subnet-0bbbbbbbbbbbbbbb1 is in public_subnet_ids too")


@pytest.mark.parametrize(
    ("count", "zones", "rules"),
    [
        (1, "", []),
        (1, "us-east-1c", []),
        (2, "us-east-1c,us-east-1a", []),
        (2, "us-east-1c", ["must be as many as availability_zones (2)"]),
        (1, "us-east-1c,us-east-1a", ["must be as many as availability_zones (1)"]),
        (2, "us-east-1a,us-west-2a", ["lie in several regions"]),
    ],
)
def test_zones_are_as_many_as_the_subnets_span_and_of_one_region(count: int, zones: str, rules: list[str]) -> None:
    values = {"ssh_cidr": "198.18.0.7/32", "availability_zones": count, "zones": zones}
    assert [each.rule for each in check(ClusterConfig.from_context({"cluster": values}))] == rules
