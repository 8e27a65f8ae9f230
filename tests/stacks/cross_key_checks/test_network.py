"""Rules that involve several keys of the network."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.cross_key_checks import check
from stacks.cross_key_checks.network import cautions

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


def test_existing_vpc_with_its_subnets_has_no_problem() -> None:
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
def test_keys_of_existing_vpc_require_each_other(changed: dict[str, Any], expected: list[str]) -> None:
    assert keys(**{**EXISTING, **changed}) == expected


def test_another_address_of_vpc_is_advised_only_for_new_vpc() -> None:
    for values, advised in ({**EXISTING, "ssh_cidr": "10.4.1.0/24"}, False), ({"ssh_cidr": "10.0.1.0/24"}, True):
        (problem,) = check(ClusterConfig.from_context({"cluster": values}))
        assert ("set another vpc_cidr" in problem.remedy) is advised
        assert "set ssh_cidr to the public address" in problem.remedy


def test_number_of_workers_in_existing_subnets_is_not_checked() -> None:
    assert keys(**EXISTING, max_workers=1000) == []


def test_session_manager_and_open_networks_exclude_each_other() -> None:
    given = {"ssh_access": "session-manager", "ssh_cidr": "198.18.0.7/32", "ssh_prefix_lists": "pl-0123456789abcdef0"}
    assert keys(**given) == ["ssh_cidr", "ssh_prefix_lists"]


def test_each_network_inside_the_vpc_is_reported() -> None:
    assert keys(ssh_cidr="10.0.0.9/32,198.18.0.7/32,10.0.1.0/24") == ["vpc_cidr", "vpc_cidr"]


def test_too_many_workers_for_private_subnets_report_the_maximum() -> None:
    """A quarter of a /24 has 64 addresses: AWS reserves five in each subnet, and the file system uses one."""
    assert keys(ssh_cidr="198.18.0.7/32", vpc_cidr="10.0.0.0/24", max_workers=58) == []
    (problem,) = check(ClusterConfig(ssh_cidr=("198.18.0.7/32",), vpc_cidr="10.0.0.0/24", max_workers=59))
    assert (problem.key, problem.value) == ("max_workers", 59)
    assert "10.0.0.0/24 have addresses for 58 workers" in problem.rule
    assert "max_workers to 58 or less" in problem.remedy


def test_unreachable_cluster_causes_warning() -> None:
    (problem,) = cautions(ClusterConfig())
    assert (problem.key, problem.value) == ("ssh_cidr", ())
    assert problem.remedy.startswith("set ssh_cidr to the network from which you connect")
    assert problem.remedy.endswith("or ssh_access = session-manager")
    assert not list(cautions(ClusterConfig(ssh_cidr=("198.18.0.7/32",))))


def test_subnets_in_both_lists_are_reported_in_order() -> None:
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
        (2, "us-east-1c", ["must list as many zones as availability_zones (2), but lists 1"]),
        (1, "us-east-1c,us-east-1a", ["must list as many zones as availability_zones (1), but lists 2"]),
        (2, "us-east-1a,us-west-2a", ["lists zones of several regions"]),
    ],
)
def test_zones_match_their_number_and_share_a_region(count: int, zones: str, rules: list[str]) -> None:
    values = {"ssh_cidr": "198.18.0.7/32", "availability_zones": count, "zones": zones}
    assert [each.rule for each in check(ClusterConfig.from_context({"cluster": values}))] == rules
