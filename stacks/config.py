"""The contract between the infrastructure and the tasks: configuration, names, ports, tags, output keys.

Standard library only, so that `fab --list` pays neither for jsii nor for boto3.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

# Ports (TCP).
SSH_PORT: Final = 22
NFS_PORT: Final = 2049
# Horovod's launcher listens for its ranks on a port of its own choice (horovod/runner/util/network.py, find_port).
RENDEZVOUS_PORTS: Final = (1024, 65535)

# Addresses of a subnet that no instance gets: five that AWS keeps, one of the mount target.
RESERVED_ADDRESSES: Final = 6

# Tags on every instance, by which the tasks find them.
CLUSTER_TAG: Final = "deepcdk:cluster"
ROLE_TAG: Final = "deepcdk:role"
MASTER: Final = "master"
WORKER: Final = "worker"

# A stand-in for ssh_cidr where nothing is deployed: the address of no other machine.
NOWHERE: Final = "127.0.0.1/32"
# A wider ssh_cidr is a typing error or must be said twice: no organisation has more than a /8.
WIDEST_SSH_PREFIX: Final = 8


class Output:
    """Keys of the stack's outputs: all that the tasks need to know of a deployed cluster."""

    VPC_ID: Final = "VpcId"
    MASTER_GROUP: Final = "MasterGroupName"
    WORKER_GROUP: Final = "WorkerGroupName"
    FILE_SYSTEM_ID: Final = "FileSystemId"
    EFS_MOUNT: Final = "EfsMount"
    BUCKET: Final = "BucketName"
    LOGIN_USER: Final = "LoginUser"
    MAX_WORKERS: Final = "MaxWorkers"


class ConfigError(ValueError):
    """Report a value of the cluster's configuration that breaks a rule.

    Carries `key` (as it stands in cdk.json), `value` and `rule`.
    """

    def __init__(self, key: str, value: object, rule: str) -> None:
        self.key, self.value, self.rule = key, value, rule
        place = f"cluster.{key}" if key else "cdk.json"
        super().__init__(f"{place}: {rule}" if value is None else f"{place} = {value!r}: {rule}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """Describe one cluster, as validated values. `cdk.json`, context.cluster, holds the same keys."""

    ssh_cidr: str
    """IPv4 network from which SSH to the master is allowed; no default, because every guess is too wide."""
    ssh_from_anywhere: bool = False
    """Say yes a second time to an `ssh_cidr` of 0.0.0.0/0, or of any other network wider than a /8."""
    name: str = "deepcdk"
    """Name of the cluster and of its stack; several live side by side in one account under different names."""
    key_name: str = "deepcdk"
    """EC2 key pair that may log in; `fab up` imports the public half of the user's key under it when it is missing."""
    vpc_cidr: str = "10.0.0.0/16"
    """Network of the VPC, /16 to /24 (deepcfn's default)."""
    availability_zones: int = 1
    """Zones that the subnets span: one, because gradients that cross zones cost time and money."""
    workers: int = 2
    """Worker instances at deployment; `fab train --nodes` grows the group later."""
    max_workers: int = 16
    """Worker instances at most; the bound of every later growth."""
    worker_instance_type: str = "c5.2xlarge"
    """EC2 instance type of the workers."""
    master_instance_type: str = "t3.medium"
    """EC2 instance type of the master, which drives runs and does not train."""
    allow_unknown_instance_types: bool = False
    """Take types that are not in the table of instance types; what needs the table is then not checked."""
    placement_group: bool = False
    """Place the workers near each other, in one cluster placement group: faster between them, harder to get many."""
    spot: bool = False
    """Launch the workers as spot instances, from the pools with most room. AWS may take one back any time."""
    on_demand_workers: int = 0
    """With `spot`: how many workers are on-demand instances nevertheless, the first ones."""
    efa: bool = False
    """Give the workers all EFA devices of their type, and one cluster placement group. Not run on AWS yet."""
    worker_image_parameter: str = ""
    """SSM parameter that names the workers' AMI: ids in templates go stale (deepcfn's most frequent complaint).
    Empty: Amazon Linux 2023 for the type's processor, with NVIDIA's driver where the type has GPUs."""
    master_image_parameter: str = ""
    """SSM parameter that names the master's AMI; empty as above."""
    login_user: str = ""
    """User of the AMIs who logs in and owns the runs; empty: the one that the AMIs' publisher made."""
    worker_volume_gib: int = 100
    """Root volume of a worker, GiB, gp3."""
    master_volume_gib: int = 50
    """Root volume of the master, GiB, gp3."""
    efs_mount: str = "/mnt/efs"
    """Directory at which every node mounts the shared file system."""
    file_system_id: str = ""
    """An existing EFS file system to mount; empty: one is created."""
    retain_data: bool = True
    """Keep the shared file system and the run bucket when the stack is destroyed."""
    ready_timeout_min: int = 15
    """Minutes that CloudFormation waits for the nodes to report success."""

    def __post_init__(self) -> None:
        _matches(self, "name", r"[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?", "1 to 32 of a-z 0-9 -, a letter first, no - last")
        _matches(self, "key_name", r"[ -~]{1,255}", "1 to 255 printable ASCII characters")
        for key in ("worker_instance_type", "master_instance_type"):
            _matches(self, key, r"[a-z][a-z0-9-]*\.[a-z0-9-]+", "an EC2 instance type such as c5.2xlarge")
        for key in ("worker_image_parameter", "master_image_parameter"):
            _matches(self, key, r"(?:/[\w./-]+)?", "the name of an SSM parameter, which starts with /, or empty")
        _matches(self, "login_user", r"(?:[a-z_][a-z0-9_-]{0,31})?", "a Linux user name, or empty")
        _matches(self, "efs_mount", r"(?:/[A-Za-z0-9][A-Za-z0-9_-]*)+", "an absolute path of letters, digits, - and _")
        _matches(self, "file_system_id", r"(?:fs-[0-9a-f]{8,40})?", "fs- and hexadecimal digits, or empty")
        _within(self, "availability_zones", 1, 2)
        _within(self, "max_workers", 1, 1000)
        _within(self, "workers", 0, self.max_workers)
        _within(self, "on_demand_workers", 0, self.max_workers)
        _within(self, "worker_volume_gib", 8, 16384)
        _within(self, "master_volume_gib", 8, 16384)
        _within(self, "ready_timeout_min", 1, 720)
        vpc = _network(self, "vpc_cidr")
        if not 16 <= vpc.prefixlen <= 24:
            raise ConfigError(
                "vpc_cidr", self.vpc_cidr, "must be a /16 to /24: a VPC's own limit, and room for the subnets"
            )
        if not vpc.is_private:
            raise ConfigError("vpc_cidr", self.vpc_cidr, "must be a private network, such as 10.0.0.0/16")
        source = _network(self, "ssh_cidr")
        if source.prefixlen < WIDEST_SSH_PREFIX and not self.ssh_from_anywhere:
            share = "the whole internet" if source.prefixlen == 0 else f"{source.num_addresses:,} addresses"
            raise ConfigError(
                "ssh_cidr",
                self.ssh_cidr,
                f"opens the master to {share}; give your own address as a /32, "
                "or say it twice with ssh_from_anywhere = true",
            )

    @property
    def public_prefix(self) -> int:
        """Return the prefix length of a public subnet, for master and NAT gateway (/24 in a /16, as in deepcfn)."""
        return min(28, _network(self, "vpc_cidr").prefixlen + 8)

    @property
    def private_prefix(self) -> int:
        """Return the prefix length of a private subnet: a quarter of the VPC, so that two zones fit."""
        return _network(self, "vpc_cidr").prefixlen + 2

    @property
    def clustered(self) -> bool:
        """Say whether the workers are in one cluster placement group, which EFA implies."""
        return self.placement_group or self.efa

    @property
    def stack_name(self) -> str:
        """Return the name of the CloudFormation stack."""
        return self.name

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> ClusterConfig:
        """Build the configuration from a whole CDK context.

        `context["cluster"]` holds the values; a key of the same name beside it (`cdk deploy -c workers=4`) wins. Such
        values arrive as strings and are coerced strictly. Keys of the CDK itself contain a colon or a slash.

        Raises ConfigError for an unknown key (with the nearest known one), a missing one, or a value against a rule.
        """
        cluster = context.get("cluster", {})
        if not isinstance(cluster, Mapping):
            raise ConfigError("", cluster, "context.cluster must be an object")
        given = dict(cluster)
        given.update({k: v for k, v in context.items() if k != "cluster" and ":" not in k and "/" not in k})
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key, value in given.items():
            if key not in fields:
                near = difflib.get_close_matches(key, fields, n=1, cutoff=0)
                raise ConfigError(
                    key, value, f"unknown key; did you mean {near[0]}? Known: {', '.join(sorted(fields))}"
                )
        values = {key: _coerce(key, value, str(fields[key].type)) for key, value in given.items()}
        if "ssh_cidr" not in values:
            cls(**values, ssh_cidr=NOWHERE)  # What else is wrong is said first: this one must be given anyway.
            raise ConfigError(
                "ssh_cidr",
                None,
                "missing; set the network from which you connect in cdk.json, or give it for once: "
                "`cdk deploy -c ssh_cidr=ADDRESS/32`, `fab up --set ssh_cidr=ADDRESS/32`",
            )
        return cls(**values)

    @classmethod
    def from_file(cls, path: Path, overrides: Mapping[str, str] | None = None) -> ClusterConfig:
        """Build the configuration from a cdk.json and `key=value` overrides, as app.py does through the CDK.

        Raises ConfigError, also when the file is missing or is not JSON.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            context = dict(document.get("context", {}))
        except FileNotFoundError:
            raise ConfigError("", str(path), "no such file; run from the project's root") from None
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError("", str(path), f"not a JSON object: {error}") from None
        return cls.from_context({**context, **(overrides or {})})


def _coerce(key: str, value: Any, kind: str) -> Any:
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        raise ConfigError(key, value, "must be true or false")
    if kind == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
            return int(value)
        raise ConfigError(key, value, "must be a whole number")
    raise ConfigError(key, value, "must be a string")


def _matches(config: ClusterConfig, key: str, pattern: str, rule: str) -> None:
    value = getattr(config, key)
    if not re.fullmatch(pattern, value, flags=re.ASCII):
        raise ConfigError(key, value, f"must be {rule}")


def _within(config: ClusterConfig, key: str, low: int, high: int) -> None:
    value = getattr(config, key)
    if not low <= value <= high:
        raise ConfigError(key, value, f"must be {low} to {high}")


def _meant(value: str) -> ipaddress.IPv4Network:
    """Return the network in which an address with host bits lies, or an example."""
    try:
        return ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        return ipaddress.IPv4Network("198.18.0.7/32")


def _network(config: ClusterConfig, key: str) -> ipaddress.IPv4Network:
    value = getattr(config, key)
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        raise ConfigError(key, value, f"must be an IPv4 network such as {_meant(value)} ({error})") from None
    if str(network) != value:
        raise ConfigError(key, value, f"must be written as {network}")
    return network
