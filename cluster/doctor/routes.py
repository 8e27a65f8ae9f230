"""Check that an existing VPC resolves names, and that its subnets have the routes that the nodes need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cluster.aws.client import entries
from cluster.aws.errors import aws_errors
from cluster.doctor.finding import FAIL, OK, WARN, Finding, Subject, finding
from stacks.config import ClusterConfig

ROUTES: Final = "VPC routes"
_INTERNET: Final = "0.0.0.0/0"
_PUBLIC_WAYS: Final = ("igw-",)
# A NAT gateway or instance, a firewall's interface, a transit gateway, Cloud WAN, a VPN, a firewall's endpoint. A
# peering connection is not included: it carries only traffic to the other VPC ("VPC peering limitations").
_PRIVATE_WAYS: Final = ("nat-", "i-", "eni-", "tgw-", "arn:", "vgw-", "vpce-")
_TARGETS: Final = (
    "NatGatewayId", "TransitGatewayId", "InstanceId", "NetworkInterfaceId", "CoreNetworkArn",
    "VpcPeeringConnectionId", "LocalGatewayId", "CarrierGatewayId", "GatewayId",
)  # fmt: skip
"""Fields with a route's target. EC2 sets the matching one, and for an instance also its interface."""

_Answers = Sequence[Mapping[str, Any]]


def ways_out(subject: Subject) -> Iterator[Finding]:
    """Check the attributes and the route tables of an existing VPC. Raises AwsError.

    Yields nothing if the configuration names no VPC, or if that VPC does not exist.
    """
    config = subject.config
    if not config.vpc_id:
        return
    ec2, mine = subject.aws.client("ec2"), [{"Name": "vpc-id", "Values": [config.vpc_id]}]
    with aws_errors(f"describing the route tables of {config.vpc_id}"):
        tables = entries(ec2, "describe_route_tables", "RouteTables", Filters=mine)
    if not tables:
        return  # Every VPC has a main table, so this VPC does not exist; the check of its subnets reports it
    yield judge_dns_attributes(config, dns_attributes(subject))
    endpoints: _Answers = []
    if any(not _default_route(table_of(tables, each)) for each in config.private_subnet_ids):
        with aws_errors(f"describing the endpoints of {config.vpc_id}"):
            endpoints = entries(ec2, "describe_vpc_endpoints", "VpcEndpoints", Filters=mine)
    yield from judge_routes(config, tables, endpoints)


def dns_attributes(subject: Subject) -> dict[str, bool]:
    """Return whether the existing VPC's enableDnsSupport and enableDnsHostnames are on, by these names.

    Raises AwsError.
    """
    vpc = subject.config.vpc_id
    with aws_errors(f"reading the attributes of {vpc}"):
        ec2 = subject.aws.client("ec2")
        support = ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsSupport")["EnableDnsSupport"]
        hostnames = ec2.describe_vpc_attribute(VpcId=vpc, Attribute="enableDnsHostnames")["EnableDnsHostnames"]
    return {"enableDnsSupport": support["Value"], "enableDnsHostnames": hostnames["Value"]}


def judge_dns_attributes(config: ClusterConfig, attributes: Mapping[str, bool]) -> Finding:
    """Judge the attributes from `dns_attributes`. Unless both are on, file system names do not resolve (EFS, "Mounting
    with a DNS name"), so the finding fails.
    """
    off = [name for name, value in attributes.items() if not value]
    if not off:
        return finding("VPC names", OK, f"{config.vpc_id} has {' and '.join(attributes)}")
    flags = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}
    calls = [f"aws ec2 modify-vpc-attribute --vpc-id {config.vpc_id} {flags[name]}" for name in off]
    what = f"{config.vpc_id} lacks {' and '.join(off)}, so the names of file systems and endpoints do not resolve"
    return finding("VPC names", FAIL, what, "; ".join(calls))


def table_of(tables: _Answers, subnet: str) -> Mapping[str, Any]:
    """Return the route table of a subnet: its own, or the main table of the VPC ("Subnet route tables").

    {} if `tables` has neither.
    """
    main: Mapping[str, Any] = {}
    for table in tables:
        for association in table.get("Associations", ()):
            if association.get("SubnetId") == subnet:
                return table
            if association.get("Main"):
                main = table
    return main


def judge_routes(config: ClusterConfig, tables: _Answers, endpoints: _Answers) -> Iterator[Finding]:
    """Judge the default route of each subnet, or whether endpoints replace a missing one.

    `tables` and `endpoints` are from DescribeRouteTables and DescribeVpcEndpoints. Yields one finding per problem, or
    one that is ok.
    """
    public = [_judge_public(subnet, table_of(tables, subnet)) for subnet in config.public_subnet_ids]
    private = [_judge_private(config, each, table_of(tables, each), endpoints) for each in config.private_subnet_ids]
    problems = [each for each in (*public, *private) if each]
    yield from problems
    if not problems:
        yield finding(ROUTES, OK, f"{len(public) + len(private)} subnets of {config.vpc_id} have a route out")


def _judge_public(subnet: str, table: Mapping[str, Any]) -> Finding | None:
    """Judge a subnet for the master: its default route must lead to an internet gateway. None if it does."""
    if _leads(table, _PUBLIC_WAYS):
        return None
    remedy = f"{_new_route(table)} an internet gateway, or name another public subnet"
    what = f"public {subnet} ({_name(table)}) {_fault(table)}: the master cannot be reached from outside"
    return finding(ROUTES, FAIL, what, remedy)


def _judge_private(config: ClusterConfig, subnet: str, table: Mapping[str, Any], endpoints: _Answers) -> Finding | None:
    """Judge a subnet for workers: its default route must lead out, for example to a NAT gateway. None if it does.

    Workers have no public address, so an internet gateway does not help. Without a default route, endpoints for all
    services that nodes call make it only a warning.
    """
    if _leads(table, _PRIVATE_WAYS):
        return None
    what = f"private {subnet} ({_name(table)}) {_fault(table)}"
    remedy = f"{_new_route(table)} a NAT gateway, a NAT instance or a transit gateway"
    if _default_route(table):
        return finding(ROUTES, FAIL, f"{what}: its nodes reach neither the internet nor AWS's public endpoints", remedy)
    if missing := missing_services(config, table, endpoints):
        what = f"{what}, and endpoints for {', '.join(missing)} are missing"
        instead = "create these endpoints, with private DNS names if they are interface endpoints"
        return finding(ROUTES, FAIL, what, f"{remedy}; or {instead}")
    what = f"{what}, only endpoints: packages can be installed only from Amazon Linux's repositories in S3"
    return finding(ROUTES, WARN, what, f"{remedy}; or use an image with every package that nodes and runs need")


def _new_route(table: Mapping[str, Any]) -> str:
    """Return the beginning of the remedy for a table's default route, up to the target. EC2 rejects a second one."""
    verb = "change the target of the route" if _default_route(table) else "add a route"
    return f"in {_name(table)}, {verb} {_INTERNET} to"


def missing_services(config: ClusterConfig, table: Mapping[str, Any], endpoints: _Answers) -> list[str]:
    """Return the endpoint names of the AWS services that nodes call but cannot reach through an endpoint of the VPC.

    `table` is the route table of the nodes' subnet, which a gateway endpoint must be in. `endpoints` are from
    DescribeVpcEndpoints.
    """
    there = {each["ServiceName"].rpartition(".")[2] for each in endpoints if _answers(each, table)}
    return [name for name in services(config) if name not in there]


def services(config: ClusterConfig) -> list[str]:
    """Return the endpoint names of the AWS services that nodes of this configuration call, such as `ssm`."""
    wanted = {"cloudformation", "s3"}  # boot signals; data, runs and packages
    if not config.opens_ssh_port:
        wanted |= {"ssm", "ssmmessages"}
    if config.node_logs or config.node_metrics:
        wanted |= {"ssm"}  # the CloudWatch agent's configuration
    if config.node_logs:
        wanted |= {"logs"}
    if config.node_metrics or (config.idle_minutes and not config.opens_ssh_port):
        wanted |= {"monitoring"}  # the metrics; and that a run is live, from a master in these subnets
    return sorted(wanted)


def _answers(endpoint: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Return whether nodes with this route table reach a service under its standard DNS name through the endpoint."""
    if endpoint.get("State", "").lower() != "available":
        return False
    if endpoint.get("VpcEndpointType") == "Gateway":
        return table.get("RouteTableId") in endpoint.get("RouteTableIds", ())
    return bool(endpoint.get("PrivateDnsEnabled"))


def _default_route(table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    routes: _Answers = table.get("Routes", ())
    return next((each for each in routes if each.get("DestinationCidrBlock") == _INTERNET), None)


def _leads(table: Mapping[str, Any], ways: tuple[str, ...]) -> bool:
    route = _default_route(table)
    return route is not None and route.get("State") != "blackhole" and _target(route).startswith(ways)


def _target(route: Mapping[str, Any]) -> str:
    return next((str(route[field]) for field in _TARGETS if route.get(field)), "an unknown target")


def _fault(table: Mapping[str, Any]) -> str:
    """Describe where a table's default route leads and whether it is a blackhole, or that it has none."""
    route = _default_route(table)
    if route is None:
        return f"has no route {_INTERNET}"
    gone = ", which no longer exists or accepts no traffic (blackhole)" if route.get("State") == "blackhole" else ""
    return f"routes {_INTERNET} to {_target(route)}{gone}"


def _name(table: Mapping[str, Any]) -> str:
    return str(table.get("RouteTableId", "the main route table"))
