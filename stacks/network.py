"""The cluster's network: a VPC with private subnets and NAT gateways, or the subnets of an existing VPC."""

from __future__ import annotations

from typing import Final

from aws_cdk import Acknowledgment, Validations
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.config import ClusterConfig
from stacks.config_keys.network import NO_FLOW_LOGS, ONE_NAT_GATEWAY

# Zone of subnets in an existing VPC. The constructs need a name, but do not write it to the template.
UNKNOWN: Final = "unknown"


class Network(Construct):
    """The VPC, new or existing, with subnets for the master and for the workers.

    The public subnets contain the NAT gateways, and the master if its SSH port is open. With Session Manager, the
    master is in a private subnet and has no public address.
    """

    master: ec2.SubnetSelection
    workers: ec2.SubnetSelection

    def __init__(self, scope: Construct, id: str, config: ClusterConfig) -> None:
        super().__init__(scope, id)
        self.vpc, public, private = self._find(config) if config.vpc_id else self._create(config)
        self.workers = ec2.SubnetSelection(subnets=private)
        self.master = ec2.SubnetSelection(subnets=public if config.opens_ssh_port else private)

    def _create(self, config: ClusterConfig) -> tuple[ec2.IVpc, list[ec2.ISubnet], list[ec2.ISubnet]]:
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(config.vpc_cidr),
            max_azs=None if config.zones else config.availability_zones,
            availability_zones=list(config.zones) or None,
            nat_gateways=1 if config.nat_gateways == ONE_NAT_GATEWAY else config.availability_zones,
            # Emptying the default security group takes a Lambda, and no instance is ever in that group.
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=config.public_prefix,
                    map_public_ip_on_launch=False,  # only the master's launch template requests an address
                ),
                ec2.SubnetConfiguration(
                    name="Private",
                    subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS,
                    cidr_mask=config.private_prefix,
                ),
            ],
        )
        if config.flow_logs == NO_FLOW_LOGS:
            Validations.of(vpc).acknowledge(
                Acknowledgment(
                    id="AwsSolutions-VPC7",
                    reason="In a cluster that runs for hours, flow logs of gradient traffic cost more than they help.",
                )
            )
        return vpc, vpc.public_subnets, vpc.private_subnets

    def _find(self, config: ClusterConfig) -> tuple[ec2.IVpc, list[ec2.ISubnet], list[ec2.ISubnet]]:
        """Import the VPC and its subnets by ID; return the VPC, the public subnets and the private subnets.

        This creates, changes, removes and looks up nothing in AWS.
        """
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=config.vpc_id,
            vpc_cidr_block=config.vpc_cidr,
            availability_zones=[UNKNOWN],
        )
        public = [self._subnet(f"Public{n}", id) for n, id in enumerate(config.public_subnet_ids, start=1)]
        private = [self._subnet(f"Private{n}", id) for n, id in enumerate(config.private_subnet_ids, start=1)]
        return vpc, public, private

    def _subnet(self, name: str, id: str) -> ec2.ISubnet:
        subnet = ec2.Subnet.from_subnet_attributes(self, name, subnet_id=id, availability_zone=UNKNOWN)
        Validations.of(subnet).acknowledge(
            Acknowledgment(
                id="@aws-cdk/aws-ec2:noSubnetRouteTableId",
                reason="The owner manages the routes of an existing VPC. This stack does not read or change them.",
            )
        )
        return subnet
