"""Conversion of moto's state to the values of localcloud.snapshot. The caller holds the lock."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from localcloud.api.autoscaling import instance_lifecycle
from localcloud.api.ec2 import spot_interruption
from localcloud.api.ec2.instances import reboots
from localcloud.snapshot import Instance, MountTarget, NatGateway, Rule, SecurityGroup, Snapshot, Subnet, Vpc

_ANYWHERE = "0.0.0.0/0"
_NOWHERE = "255.255.255.255/32"


def observe(*, ec2: Any, efs: Any, fsx: Any, iam: Any) -> Snapshot:
    """Return all networks, security groups, file servers and instances, from moto's backends of the account and region.

    Omitted are the account's default VPC if it is empty, instances that are not running, NAT gateways that are not
    available, and security group rules for IPv6.
    """
    instances = [
        instance
        for reservation in ec2.reservations.values()
        for instance in reservation.instances
        if instance._state.name == "running" and instance.nics
    ]
    gateways = [gateway for gateway in ec2.nat_gateways.values() if gateway.state == "available"]
    targets = [*_mount_targets(ec2, efs), *_lustre_servers(ec2, fsx)]
    subnets = {subnet.id: subnet for zone in ec2.subnets.values() for subnet in zone.values()}
    inhabited = {subnets[instance.nics[0].subnet.id].vpc_id for instance in instances if instance.nics}
    inhabited |= {gateway.vpc_id for gateway in gateways} | {target.vpc_id for target in targets}
    vpcs = [vpc for vpc in ec2.vpcs.values() if not vpc.is_default or vpc.id in inhabited]
    kept = {vpc.id for vpc in vpcs}
    routes = _default_routes(ec2)
    return Snapshot(
        vpcs=tuple(Vpc(id=vpc.id, cidr=vpc.cidr_block) for vpc in vpcs),
        subnets=tuple(
            Subnet(
                id=subnet.id,
                vpc_id=subnet.vpc_id,
                cidr=subnet.cidr_block,
                zone=subnet.availability_zone,
                default_route=routes.get(subnet.id, routes.get(subnet.vpc_id, "")),
            )
            for subnet in subnets.values()
            if subnet.vpc_id in kept
        ),
        security_groups=tuple(
            SecurityGroup(
                id=group.id,
                vpc_id=group.vpc_id,
                ingress=tuple(_rule(ec2, rule) for rule in group.ingress_rules if _is_carried_out(rule)),
                egress=tuple(_rule(ec2, rule) for rule in group.egress_rules if _is_carried_out(rule)),
            )
            for vpc_id in kept
            for group in ec2.groups[vpc_id].values()
        ),
        nat_gateways=tuple(
            NatGateway(
                id=gateway.id,
                vpc_id=gateway.vpc_id,
                subnet_id=gateway.subnet_id,
                private_ip=gateway._eni.private_ip_address,
                public_ip=gateway._eni.public_ip or "",
            )
            for gateway in gateways
        ),
        mount_targets=tuple(targets),
        instances=tuple(_instance(ec2, iam, instance) for instance in instances),
    )


def _mount_targets(ec2: Any, efs: Any) -> Iterator[MountTarget]:
    for target in efs.mount_targets_by_id.values():
        yield MountTarget(
            id=target.mount_target_id,
            file_system_id=target.file_system_id,
            vpc_id=target.vpc_id,
            subnet_id=target.subnet_id,
            ip=target.ip_address,
            group_ids=tuple(target.security_groups or _default_group(ec2, target.vpc_id)),
        )


def _lustre_servers(ec2: Any, fsx: Any) -> Iterator[MountTarget]:
    for system in fsx.file_systems.values():
        subnet = system.interface.subnet
        yield MountTarget(
            id=system.interface.id,
            file_system_id=system.file_system_id,
            vpc_id=subnet.vpc_id,
            subnet_id=subnet.id,
            ip=system.interface.private_ip_address,
            group_ids=tuple(system.security_group_ids or _default_group(ec2, subnet.vpc_id)),
            service="fsx",
        )


def _default_routes(ec2: Any) -> dict[str, str]:
    """Return the target of 0.0.0.0/0 by subnet id, and by VPC id for subnets without a separate route table."""
    found = {}
    for table in ec2.route_tables.values():
        target = ""
        for route in table._routes.values():
            if route.destination_cidr_block == _ANYWHERE and not route.local:
                target = _target(route)
        for subnet_id in table._associations.values():
            found[subnet_id] = target
        if table.main_association_id is not None:
            found[table.vpc_id] = target
    return found


def _target(route: Any) -> str:
    """Return the id of a route's gateway, or "" if the gateway is deleted or not available (a black hole)."""
    if route.nat_gateway is not None:
        return route.nat_gateway.id if route.nat_gateway.state == "available" else ""
    return route.gateway.id if route.gateway is not None else ""


def _default_group(ec2: Any, vpc_id: str) -> list[str]:
    return [group.id for group in ec2.groups[vpc_id].values() if group.is_default]


def _is_carried_out(rule: Any) -> bool:
    """Return False for IPv6 rules, which the embedded networks do not support, and for rules that match nothing.

    The CDK uses 255.255.255.255/32 for "no traffic", because AWS interprets an empty list as "all traffic".
    """
    return bool(rule.ip_range.get("CidrIp") not in (None, _NOWHERE) or rule.source_group or rule.prefix_list_id)


def _rule(ec2: Any, rule: Any) -> Rule:
    everything = rule.ip_protocol in ("-1", None)
    return Rule(
        protocol="-1" if everything else str(rule.ip_protocol),
        from_port=0 if everything else int(rule.from_port),
        to_port=65535 if everything else int(rule.to_port),
        cidrs=(rule.ip_range["CidrIp"],) if rule.ip_range.get("CidrIp") else _listed(ec2, rule.prefix_list_id),
        group_ids=(rule.source_group["GroupId"],) if rule.source_group else (),
    )


def _listed(ec2: Any, prefix_list_id: str | None) -> tuple[str, ...]:
    """Return the networks of a managed prefix list's newest version, or none if the list was deleted."""
    found = ec2.managed_prefix_lists.get(prefix_list_id) if prefix_list_id else None
    if found is None or found.state == "delete-complete":
        return ()
    return tuple(entry["Cidr"] for entry in found.entries.get(found.version) or ())


def _instance(ec2: Any, iam: Any, instance: Any) -> Instance:
    interface = instance.nics[0]
    key = ec2.key_pairs.get(instance.key_name)
    profile_arn = (instance.iam_instance_profile or {}).get("Arn", "")
    groups = {group.id: None for group in (*interface._group_set, *instance.security_groups)}
    return Instance(
        id=instance.id,
        vpc_id=interface.subnet.vpc_id,
        subnet_id=interface.subnet.id,
        zone=interface.subnet.availability_zone,
        private_ip=interface.private_ip_address,
        public_ip=interface.public_ip or "",
        group_ids=tuple(groups),
        image_id=instance.image_id,
        instance_type=instance.instance_type,
        user_data=base64.b64decode(str(instance.user_data)) if instance.user_data else b"",
        public_key=key.material_public.decode().strip() if key else "",
        key_name=instance.key_name or "",
        profile_arn=profile_arn,
        role_name=_role_name(iam, profile_arn),
        spot=getattr(instance, "lifecycle", None) == "spot",
        rebalance_at=spot_interruption.recommended_at(instance),
        ends_at=spot_interruption.deadline(instance),
        target_state=instance_lifecycle.target_state(instance),
        metadata_tokens_required=instance.metadata_options.http_tokens == "required",
        tags=tuple(ec2.tags[instance.id].items()) if instance.id in ec2.tags else (),
        volume_gib=_root_volume_gib(instance),
        reboots=reboots(instance),
    )


def _root_volume_gib(instance: Any) -> int:
    """Return the size of an instance's root volume, or of its first volume if no volume has the root's device name."""
    volumes = instance.block_device_mapping
    return int((volumes.get(instance.root_device_name) or next(iter(volumes.values()))).size)


def _role_name(iam: Any, profile_arn: str) -> str:
    if not profile_arn:
        return ""
    profile = iam.instance_profiles.get(profile_arn.rsplit("/", 1)[-1])
    if profile is None:
        profile = next((each for each in iam.instance_profiles.values() if each.arn == profile_arn), None)
    return next((role.name for role in profile.roles), "") if profile is not None else ""
