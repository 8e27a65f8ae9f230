"""Values of the network that are wrong by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig, ConfigError

VPC = "vpc-0123456789abcdef0"


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
        ("zones", "us-west-2-lax-1a"),
        ("zones", "use1-az1"),
        ("zones", "us-east-1a,us-east-1a"),
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


def test_a_network_wider_than_any_organisations_needs_a_confirmation() -> None:
    assert build(ssh_cidr="198.0.0.0/8").ssh_cidr == ("198.0.0.0/8",)
    with pytest.raises(ConfigError, match=r"opens the master to 33,554,432 addresses; .*ssh_from_anywhere = true"):
        build(ssh_cidr="198.0.0.0/7")
    assert build(ssh_cidr="0.0.0.0/0", ssh_from_anywhere=True).ssh_cidr == ("0.0.0.0/0",)


def test_subnets_leave_room_for_each_other_in_the_vpc() -> None:
    for cidr, public, private in (("10.0.0.0/16", 24, 18), ("10.0.0.0/20", 28, 22), ("10.0.0.0/24", 28, 26)):
        config = build(vpc_cidr=cidr)
        assert (config.public_prefix, config.private_prefix) == (public, private)


@pytest.mark.parametrize("cidr", ["10.0.0.0/16", "10.0.0.0/24", "172.16.0.0/20", "192.168.0.0/17"])
def test_a_private_network_of_any_size_that_holds_the_subnets_may_be_the_vpcs(cidr: str) -> None:
    assert build(vpc_cidr=cidr).vpc_cidr == cidr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"vpc_cidr": "10.0.0.0/15"}, "must be a /16 to /24"),
        ({"vpc_cidr": "198.51.0.0/16"}, "must be a private network, such as 10.0.0.0/16"),
        ({"vpc_endpoints": "s3,dynamodb"}, "= 'dynamodb': must be one of s3, ssm, ecr, logs"),
        ({"vpc_endpoints": "s3,ssm,s3"}, "= 's3': is listed twice"),
        ({"availability_zones": 7, "vpc_id": "vpc-0123456789abcdef0"}, "must be 1 to 6"),
        ({"availability_zones": 3}, "must be 1 to 2"),
    ],
)
def test_the_rule_says_what_would_be_right(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ssh_access": "bastion"}, "must be one of port, session-manager"),
        ({"nat_gateways": "two"}, "must be one of one, one-per-zone"),
        (
            {"flow_logs": "on"},
            "must be off, log-group, or the ARN of a bucket such as arn:aws:s3:::my-flow-logs, "
            "without the folder AWSLogs, which is EC2's own",
        ),
        ({"ssh_prefix_lists": "pl-0"}, "must be a prefix list such as pl-0123456789abcdef0"),
        ({"vpc_id": "my-vpc"}, "must be a VPC such as vpc-0123456789abcdef0, or empty"),
        ({"public_subnet_ids": "subnet-XYZ"}, "must be a subnet such as subnet-0123456789abcdef0"),
        ({"private_subnet_ids": "subnet-XYZ"}, "must be a subnet such as subnet-0123456789abcdef0"),
        ({"availability_zones": 0}, "must be 1 to 2"),
        ({"vpc_cidr": "10.0.0.0/25"}, "must be a /16 to /24: a VPC's own limit, and room for the subnets"),
        ({"vpc_cidr": "10.0.0.0/29", "vpc_id": VPC}, "must be a /16 to /28, as AWS requires of a VPC"),
        ({"vpc_cidr": "198.51.0.0/16"}, "must be a private network, such as 10.0.0.0/16"),
        ({"ssh_cidr": "198.18.0.7/32,198.18.0.7/32"}, "is listed twice"),
        ({"ssh_prefix_lists": "pl-01234567,pl-01234567"}, "is listed twice"),
        ({"public_subnet_ids": "subnet-01234567,subnet-01234567"}, "is listed twice"),
        (
            {"ssh_cidr": "0.0.0.0/0"},
            "opens the master to the whole internet; give your own address as a /32, "
            "or confirm it with ssh_from_anywhere = true",
        ),
        ({"ssh_cidr": "198.18.0.7"}, "must be written as 198.18.0.7/32"),
    ],
)
def test_the_first_wrong_value_is_refused_with_its_whole_rule(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**values)
    assert (caught.value.key, caught.value.rule) == (next(iter(values)), said)


def test_a_number_of_digits_tells_an_identifier() -> None:
    for digits in ("01234567", "0123456789abcdef0"):
        config = build(
            vpc_id=f"vpc-{digits}",
            ssh_prefix_lists=f"pl-{digits}",
            public_subnet_ids=f"subnet-{digits}",
            private_subnet_ids=f"subnet-{digits}",
        )
        assert (config.vpc_id, config.ssh_prefix_lists) == (f"vpc-{digits}", (f"pl-{digits}",))
    for digits in ("0123456", "0123456789abcdef01"):
        with pytest.raises(ConfigError, match="must be a VPC such as"):
            build(vpc_id=f"vpc-{digits}")


def test_by_default_a_cluster_is_in_one_zone_of_a_vpc_of_its_own_and_open_to_no_network() -> None:
    config = build()
    assert (config.ssh_access, config.ssh_cidr, config.ssh_prefix_lists) == ("port", (), ())
    assert config.ssh_from_anywhere is False
    assert (config.vpc_cidr, config.availability_zones, config.nat_gateways) == ("10.0.0.0/16", 1, "one")
    assert (config.vpc_endpoints, config.flow_logs) == (("s3",), "off")
    assert (config.vpc_id, config.public_subnet_ids, config.private_subnet_ids) == ("", (), ())


@pytest.mark.parametrize(
    "values",
    [
        {"availability_zones": 2},
        {"availability_zones": 6, "vpc_id": VPC},
        {"nat_gateways": "one-per-zone"},
        {"vpc_endpoints": "s3,ssm,ecr,logs"},
        {"flow_logs": "log-group"},
        {"flow_logs": "arn:aws:s3:::my-flow-logs"},
        {"flow_logs": "arn:aws-us-gov:s3:::abc/of/deep_cdk=1."},
        {"vpc_cidr": "10.0.0.0/28", "vpc_id": VPC},
        {"vpc_cidr": "10.0.0.0/16", "vpc_id": VPC},
        {"vpc_cidr": "198.51.0.0/16", "vpc_id": VPC},
    ],
)
def test_all_that_a_network_can_have_is_taken(values: dict[str, Any]) -> None:
    config = build(**values)
    for key, value in values.items():
        given = getattr(config, key)
        assert (",".join(given) if isinstance(given, tuple) else given) == value


def many(kind: str, count: int) -> str:
    return ",".join(f"{kind}-{number:08x}" for number in range(count))


def test_as_many_prefix_lists_and_subnets_are_taken_as_ec2_describes() -> None:
    assert len(build(ssh_prefix_lists=many("pl", 200)).ssh_prefix_lists) == 200
    with pytest.raises(ConfigError) as caught:
        build(ssh_prefix_lists=many("pl", 201))
    assert (caught.value.key, caught.value.value) == ("ssh_prefix_lists", "201 lists")
    assert caught.value.rule == "must be 200 at most, as many as EC2 describes in one call"
    for key in ("public_subnet_ids", "private_subnet_ids"):
        assert len(getattr(build(vpc_id=VPC, **{key: many("subnet", 6)}), key)) == 6
        with pytest.raises(ConfigError) as caught:
            build(vpc_id=VPC, **{key: many("subnet", 7)})
        assert (caught.value.key, caught.value.rule) == (key, "must be 6 at most, one for each zone")


@pytest.mark.parametrize(
    ("cidr", "reserved"),
    [("0.1.0.0/16", "0.0.0.0/8"), ("127.0.0.0/16", "127.0.0.0/8"), ("169.254.0.0/16", "169.254.0.0/16")],
)
def test_networks_of_hosts_themselves_are_no_vpcs(cidr: str, reserved: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(vpc_cidr=cidr)
    assert (caught.value.key, caught.value.value) == ("vpc_cidr", cidr)
    assert caught.value.rule == f"lies within {reserved}, of which EC2 makes no VPC; take one such as 10.0.0.0/16"


@pytest.mark.parametrize(
    ("bucket", "taken"),
    [
        ("/AWSLogs", False),
        ("/of/AWSLogs/", False),
        ("/AWSLogsOld", True),
        ("/of/the=cluster_1./", True),
        ("/a b", False),
    ],
)
def test_flow_logs_go_to_any_folder_but_ec2s_own(bucket: str, taken: bool) -> None:
    arn = f"arn:aws:s3:::my-flow-logs{bucket}"
    if taken:
        assert build(flow_logs=arn).flow_logs == arn
        return
    with pytest.raises(ConfigError, match="without the folder AWSLogs, which is EC2's own"):
        build(flow_logs=arn)
