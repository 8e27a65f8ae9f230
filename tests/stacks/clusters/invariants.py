"""Invariants of every cluster, whatever `cdk.json` contains. Each function yields descriptions of violations.

They are checked against the named clusters and against random ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from stacks.config import SSH_PORT, ClusterConfig
from tests.stacks.clusters import policies
from tests.stacks.clusters.template import Template

Invariant = Callable[[Template, ClusterConfig], Iterator[str]]

NODES: Final = ("MasterGroup", "WorkerGroup")
ADDING: Final = frozenset({"s3:ListBucket", "s3:PutObject"})
"""Permissions needed to store copies of runs. Versioning allows recovery of overwritten copies."""


def workers_have_no_way_in(template: Template, config: ClusterConfig) -> Iterator[str]:
    """No worker has a public address, and no route of a worker's subnet leads to an internet gateway."""
    gateways = set(template.of("AWS::EC2::InternetGateway")) | set(template.of("AWS::EC2::EgressOnlyInternetGateway"))
    subnets = template.resources["WorkerGroup"]["Properties"]["VPCZoneIdentifier"]
    for subnet in subnets:
        for id, route in template.of("AWS::EC2::Route").items():
            target = route.get("GatewayId") or route.get("EgressOnlyInternetGatewayId") or {}
            if route["RouteTableId"]["Ref"] in _tables(template, subnet) and target.get("Ref") in gateways:
                yield f"{id} leads from the workers' subnet {subnet} to {target['Ref']}"
    if config.vpc_id:
        for id, item in template.resources.items():
            if item["Type"] in ("AWS::EC2::Route", "AWS::EC2::SubnetRouteTableAssociation", "AWS::EC2::Subnet"):
                yield f"{id} changes the routes of a VPC that is not ours"
    elif any("Ref" not in subnet or len(_tables(template, subnet)) != 1 for subnet in subnets):
        yield f"of {subnets} not every one is ours, with one route table"
    for interface in template.template_of("WorkerGroup")["NetworkInterfaces"]:
        if interface.get("AssociatePublicIpAddress"):
            yield "workers get public addresses"
    for id, subnet in template.of("AWS::EC2::Subnet").items():
        if subnet.get("MapPublicIpOnLaunch") is not False:
            yield f"{id} hands out public addresses"


def _tables(template: Template, subnet: Any) -> set[str]:
    associations = template.of("AWS::EC2::SubnetRouteTableAssociation").values()
    return {each["RouteTableId"]["Ref"] for each in associations if each["SubnetId"] == subnet}


def nobody_else_comes_in(template: Template, config: ClusterConfig) -> Iterator[str]:
    """Only the given networks are admitted, and only to the master's SSH port; other rules are between own groups."""
    groups = template.of("AWS::EC2::SecurityGroup")
    sources: set[str] = set()
    for group, rule in template.security_rules("in"):
        peer = rule.get("SourceSecurityGroupId")
        if peer is not None:
            if peer.get("Fn::GetAtt", [""])[0] not in groups:
                yield f"{group} admits {peer}, which is no group of this stack"
            continue
        source = rule.get("CidrIp") or rule.get("SourcePrefixListId")
        ports = (str(rule["IpProtocol"]), rule.get("FromPort"), rule.get("ToPort"))
        if not isinstance(source, str):
            yield f"{group} admits {rule}"
            continue
        sources.add(source)
        if group not in _groups_of(template, "MasterGroup") or group in _groups_of(template, "WorkerGroup"):
            yield f"{group}, which is not the master's own, admits {source}"
        if ports != ("tcp", SSH_PORT, SSH_PORT):
            yield f"{group} admits {source} to {ports}"
    meant = {*config.ssh_cidr, *config.ssh_prefix_lists} if config.opens_ssh_port else set()
    if sources != meant:
        yield f"admits {sorted(sources)}, but was given {sorted(meant)}"


def _groups_of(template: Template, nodes: str) -> set[str]:
    interfaces = template.template_of(nodes)["NetworkInterfaces"]
    return {group["Fn::GetAtt"][0] for interface in interfaces for group in interface["Groups"]}


def all_is_encrypted(template: Template, config: ClusterConfig) -> Iterator[str]:
    """Every volume, file system and bucket is encrypted, with the given key if there is one."""
    key = config.kms_key
    for id, item in template.of("AWS::EC2::LaunchTemplate").items():
        mappings = item["LaunchTemplateData"].get("BlockDeviceMappings", [])
        if not mappings:
            yield f"{id} leaves its volume as the image has it"
        for volume in (mapping.get("Ebs", {}) for mapping in mappings):
            if volume.get("Encrypted") is not True or bool(volume.get("KmsKeyId")) != bool(key):
                yield f"{id} has the volume {volume}"
    for id, item in template.of("AWS::EFS::FileSystem").items():
        if item.get("Encrypted") is not True or bool(item.get("KmsKeyId")) != bool(key):
            yield f"{id} is not encrypted"
    for id, item in template.of("AWS::FSx::FileSystem").items():  # FSx encrypts all, scratch ones with its own key
        persistent = item["LustreConfiguration"]["DeploymentType"].startswith("PERSISTENT")
        if bool(item.get("KmsKeyId")) != (bool(key) and persistent):
            yield f"{id} is encrypted with another key"
    for id, item in template.of("AWS::S3::Bucket").items():
        rules = item.get("BucketEncryption", {}).get("ServerSideEncryptionConfiguration", [])
        used = [rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] for rule in rules]
        if used != ["aws:kms" if key else "AES256"]:
            yield f"{id} is encrypted with {used}"
    for id, item in template.of("AWS::Logs::LogGroup").items():
        if key and not item.get("KmsKeyId"):
            yield f"{id} is not encrypted with the key"


def metadata_wants_a_token(template: Template, config: ClusterConfig) -> Iterator[str]:
    """Every instance allows only version 2 of the metadata service."""
    del config
    for id, item in template.of("AWS::EC2::LaunchTemplate").items():
        options = item["LaunchTemplateData"].get("MetadataOptions", {})
        if options.get("HttpTokens") != "required" or options.get("HttpPutResponseHopLimit") != 1:
            yield f"{id} has {options}"
    for id, item in template.resources.items():
        if item["Type"] in ("AWS::EC2::Instance", "AWS::AutoScaling::LaunchConfiguration", "AWS::EC2::SpotFleet"):
            yield f"{id} launches instances without a launch template"
    used = {template.template_id_of(id) for id in template.of("AWS::AutoScaling::AutoScalingGroup")}
    if used != set(template.of("AWS::EC2::LaunchTemplate")):
        yield "a group launches from a template that is not of this stack"


def nothing_is_allowed_in_excess(template: Template, config: ClusterConfig) -> Iterator[str]:
    """No action is a wildcard, resources are wildcards only if listed, and each role has the given boundary."""
    yield from policies.excess(template)
    for id, role in template.of("AWS::IAM::Role").items():
        if role.get("PermissionsBoundary", "") != config.permissions_boundary:
            yield f"{id} is outside of {config.permissions_boundary}"


def the_bucket_is_private(template: Template, config: ClusterConfig) -> Iterator[str]:
    """No bucket is public, and each rejects requests without TLS."""
    del config
    for id, item in template.of("AWS::S3::Bucket").items():
        if list(item.get("PublicAccessBlockConfiguration", {}).values()) != [True] * 4:
            yield f"{id} may be made public"
        rules = [
            statement
            for policy in template.of("AWS::S3::BucketPolicy").values()
            for statement in policy["PolicyDocument"]["Statement"]
            if policy["Bucket"] == {"Ref": id}
        ]
        if not any(
            rule["Effect"] == "Deny" and rule.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}
            for rule in rules
        ):
            yield f"{id} takes requests without TLS"


def archived_runs_are_out_of_the_nodes_reach(template: Template, config: ClusterConfig) -> Iterator[str]:
    """No role may do more with a bucket of the stack than list it and add objects: no reading, no deleting."""
    del config
    for statement in policies.allowing(template.resources):
        for id in template.of("AWS::S3::Bucket"):
            if id in str(statement.get("Resource")) and (more := set(policies.listed(statement["Action"])) - ADDING):
                yield f"{id}: {', '.join(sorted(more))} is allowed"


def nothing_runs_but_the_nodes(template: Template, config: ClusterConfig) -> Iterator[str]:
    """No Lambda functions and no custom resources: groups and services do the work themselves."""
    del config
    for id, item in template.resources.items():
        if item["Type"].startswith(("AWS::Lambda::", "Custom::", "AWS::CloudFormation::CustomResource")):
            yield f"{id} is {item['Type']}"


def user_data_fits(template: Template, config: ClusterConfig) -> Iterator[str]:
    """The boot script of every node fits into EC2's limit, with room for its references."""
    del config
    for group in NODES:
        size = len(template.user_data(group).encode())
        if size > 16384:
            yield f"the user data of {group} has {size} bytes"


INVARIANTS: Final[tuple[Invariant, ...]] = (
    workers_have_no_way_in,
    nobody_else_comes_in,
    all_is_encrypted,
    metadata_wants_a_token,
    nothing_is_allowed_in_excess,
    the_bucket_is_private,
    archived_runs_are_out_of_the_nodes_reach,
    nothing_runs_but_the_nodes,
    user_data_fits,
)


def broken(template: Template, config: ClusterConfig) -> list[str]:
    """List every violation, each with the name of its invariant."""
    return [f"{law.__name__}: {text}" for law in INVARIANTS for text in law(template, config)]
