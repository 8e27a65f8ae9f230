"""Values of the network that are wrong by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig, ConfigError


def build(**values: Any) -> ClusterConfig:
    return ClusterConfig.from_context({"cluster": values})


def test_ssh_comes_from_as_many_networks_as_are_listed() -> None:
    both = ("198.18.0.7/32", "198.18.4.0/24")
    assert build(ssh_cidr=list(both)).ssh_cidr == both
    assert build(ssh_cidr="198.18.0.7/32, 198.18.4.0/24").ssh_cidr == both


def test_one_network_of_several_that_is_too_wide_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'0\.0\.0\.0/0': opens the master to the whole internet") as caught:
        build(ssh_cidr=["198.18.0.7/32", "0.0.0.0/0"])
    assert caught.value.key == "ssh_cidr"


def test_a_prefix_list_may_stand_in_place_of_networks() -> None:
    config = build(ssh_prefix_lists="pl-0123456789abcdef0")
    assert (config.ssh_cidr, config.ssh_prefix_lists) == ((), ("pl-0123456789abcdef0",))


def test_session_manager_needs_no_network_and_all_else_is_out_of_reach_without_one() -> None:
    closed = build(ssh_access="session-manager")
    assert (closed.opens_ssh_port, closed.is_reachable) == (False, True)
    for values in ({}, {"ssh_access": "port"}, {"ssh_cidr": ""}):
        assert not build(**values).is_reachable


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssh_access", "bastion"),
        ("ssh_prefix_lists", "198.18.0.0/16"),
        ("nat_gateways", "two"),
        ("vpc_endpoints", "s3,dynamodb"),
        ("flow_logs", "on"),
        ("flow_logs", "arn:aws:s3:::No_Bucket"),
        ("vpc_id", "my-vpc"),
        ("public_subnet_ids", "subnet-XYZ"),
        ("private_subnet_ids", "10.0.0.0/24"),
        ("private_subnet_ids", "subnet-0123456789abcdef0,subnet-0123456789abcdef0"),
        ("availability_zones", 3),
        ("vpc_cidr", "10.0.0.0/25"),
        ("vpc_cidr", "198.51.0.0/16"),
    ],
)
def test_a_wrong_value_is_refused_under_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**{"ssh_cidr": "198.18.0.7/32", key: value})
    assert caught.value.key == key


def test_an_existing_vpc_may_have_any_network_that_a_vpc_can_have_and_more_zones() -> None:
    here = {"ssh_cidr": "198.18.0.7/32", "vpc_id": "vpc-0123456789abcdef0"}
    assert build(**here, vpc_cidr="100.64.0.0/28", availability_zones=3).availability_zones == 3
    with pytest.raises(ConfigError, match="/16 to /28"):
        build(**here, vpc_cidr="10.0.0.0/8")
