"""The security groups of the master, the workers and the shared file system."""

from __future__ import annotations

import dataclasses

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.config import (
    NFS_PORT,
    SSH_PORT,
    ClusterConfig,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirewallProps:
    config: ClusterConfig
    vpc: ec2.IVpc


class Firewall(Construct):
    """The security groups of the master, the workers and the shared file system, with all rules between them."""

    def __init__(self, scope: Construct, id: str, props: FirewallProps) -> None:
        super().__init__(scope, id)
        opens = props.config.opens_ssh_port
        self.master = ec2.SecurityGroup(
            self, "Master", vpc=props.vpc, description="SSH from ssh_cidr" if opens else "Nothing from outside"
        )
        self.workers = ec2.SecurityGroup(self, "Workers", vpc=props.vpc, description="Each other and the master")
        self.files = ec2.SecurityGroup(
            self, "Files", vpc=props.vpc, description="NFS from all nodes", allow_all_outbound=False
        )
        self._admit_ssh(props.config)
        self._admit_ranks()
        self._admit_nfs()

    def _admit_ssh(self, config: ClusterConfig) -> None:
        ssh = ec2.Port.tcp(SSH_PORT)
        if config.opens_ssh_port:
            for cidr in config.ssh_cidr:
                self.master.add_ingress_rule(ec2.Peer.ipv4(cidr), ssh, "SSH from ssh_cidr")
            for prefix_list in config.ssh_prefix_lists:
                self.master.add_ingress_rule(ec2.Peer.prefix_list(prefix_list), ssh, "SSH from ssh_prefix_lists")
        self.workers.add_ingress_rule(self.master, ssh, "SSH from the master")

    def _admit_ranks(self) -> None:
        self.workers.add_ingress_rule(self.workers, ec2.Port.all_traffic(), "Ranks among themselves")
        # EFA also needs an outbound rule to the group itself. A rule to 0.0.0.0/0 does not apply to EFA's traffic.
        ec2.CfnSecurityGroupEgress(
            self,
            "WorkersToWorkers",
            group_id=self.workers.security_group_id,
            destination_security_group_id=self.workers.security_group_id,
            ip_protocol="-1",
            description="Ranks among themselves (EFA)",
        )

    def _admit_nfs(self) -> None:
        nfs = ec2.Port.tcp(NFS_PORT)
        self.files.add_ingress_rule(self.master, nfs, "NFS from the master")
        self.files.add_ingress_rule(self.workers, nfs, "NFS from the workers")
