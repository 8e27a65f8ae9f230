"""Rules that bind several values of the network."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.validation import check

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
        ({"vpc_endpoints": "s3"}, ["vpc_endpoints"]),
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
