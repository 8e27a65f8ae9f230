"""The cluster's network: a VPC whose private subnets reach out through one NAT gateway."""

from __future__ import annotations

import dataclasses

from aws_cdk import Acknowledgment, Validations
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IDependable

from stacks.config import ClusterConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkProps:
    config: ClusterConfig


class Network(Construct):
    """Own the VPC: public subnets for the master and the NAT gateway, private ones for the workers."""

    public: ec2.SubnetSelection
    private: ec2.SubnetSelection

    def __init__(self, scope: Construct, id: str, props: NetworkProps) -> None:
        super().__init__(scope, id)
        config = props.config
        self.public = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC)
        self.private = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(config.vpc_cidr),
            max_azs=config.availability_zones,
            nat_gateways=1,  # workers fetch little through it, and each one costs as much as a small instance
            # Emptying the default group takes a Lambda; no instance is ever in that group.
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=config.public_prefix,
                    map_public_ip_on_launch=False,  # only the master's launch template asks for an address
                ),
                ec2.SubnetConfiguration(
                    name="Private",
                    subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS,
                    cidr_mask=config.private_prefix,
                ),
            ],
        )
        Validations.of(self.vpc).acknowledge(
            Acknowledgment(
                id="AwsSolutions-VPC7",
                reason="Flow logs of gradient traffic cost more than they tell in a cluster that lives for hours.",
            )
        )

    @property
    def public_ways_out(self) -> list[IDependable]:
        """Return what a node in a public subnet needs before it reaches the internet."""
        return [subnet.internet_connectivity_established for subnet in self.vpc.public_subnets]

    @property
    def private_ways_out(self) -> list[IDependable]:
        """Return what a node in a private subnet needs before it reaches the internet."""
        return [subnet.internet_connectivity_established for subnet in self.vpc.private_subnets]
