"""VPC endpoints: routes to AWS's services that do not go over the internet."""

from __future__ import annotations

import dataclasses
from typing import Final

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.config import ClusterConfig
from stacks.config_keys.network import S3_ENDPOINT
from stacks.firewall import Firewall
from stacks.network import Network

HTTPS_PORT: Final = 443


@dataclasses.dataclass(frozen=True, kw_only=True)
class EndpointsProps:
    config: ClusterConfig
    network: Network
    firewall: Firewall


class Endpoints(Construct):
    """The endpoints in `vpc_endpoints`, and the security group of the interface endpoints."""

    def __init__(self, scope: Construct, id: str, props: EndpointsProps) -> None:
        super().__init__(scope, id)
        if S3_ENDPOINT in props.config.vpc_endpoints and not props.config.vpc_id:  # an existing VPC has its own
            self._create_gateway(props)
        if props.config.interface_endpoints:
            group = self._create_group(props)
            for service in props.config.interface_endpoints:
                self._create_interface(props, service, group)

    def _create_gateway(self, props: EndpointsProps) -> None:
        """Create the endpoint for S3, which is free, and route the traffic to S3 from all subnets through it.

        Nodes must boot after this: a new endpoint cuts existing connections to S3 ("Gateway endpoints for Amazon S3").
        """
        subnets = (*props.network.vpc.public_subnets, *props.network.vpc.private_subnets)
        ec2.CfnVPCEndpoint(
            self,
            "S3",
            vpc_endpoint_type="Gateway",
            vpc_id=props.network.vpc.vpc_id,
            service_name=self._service("s3"),
            route_table_ids=[subnet.route_table.route_table_id for subnet in subnets],
        )

    def _create_group(self, props: EndpointsProps) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self, "Group", vpc=props.network.vpc, description="HTTPS from all nodes", allow_all_outbound=False
        )
        https = ec2.Port.tcp(HTTPS_PORT)
        group.add_ingress_rule(props.firewall.master, https, "HTTPS from the master")
        group.add_ingress_rule(props.firewall.workers, https, "HTTPS from the workers")
        return group

    def _create_interface(self, props: EndpointsProps, service: str, group: ec2.SecurityGroup) -> None:
        """Create an address for a service in each private subnet. The service's usual name then resolves to it."""
        ec2.CfnVPCEndpoint(
            self,
            service.title().replace(".", ""),
            vpc_endpoint_type="Interface",
            vpc_id=props.network.vpc.vpc_id,
            service_name=self._service(service),
            subnet_ids=[subnet.subnet_id for subnet in props.network.workers.subnets or ()],
            security_group_ids=[group.security_group_id],
            private_dns_enabled=True,
        )

    def _service(self, name: str) -> str:
        return f"com.amazonaws.{Stack.of(self).region}.{name}"
