"""Rules for the Lustre file system, and for all mount points."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import PurePosixPath

from stacks import images
from stacks.config import ClusterConfig
from stacks.config_keys.lustre import FSX_THROUGHPUTS, LustreKeys
from stacks.cross_key_checks.problem import Problem, unused


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with the Lustre file system and with mount points."""
    if config.fsx_capacity_gib:
        yield from _throughput(config)
        yield from _client(config)
    else:
        keys = (field.name for field in dataclasses.fields(LustreKeys))
        why = "without a Lustre file system (fsx_capacity_gib = 0)"
        yield from unused(config, keys, why, "set fsx_capacity_gib to 1200 or more")
    yield from _link(config)
    yield from _mounts(config)


def _throughput(config: ClusterConfig) -> Iterator[Problem]:
    possible = FSX_THROUGHPUTS[config.fsx_deployment]
    if config.fsx_throughput not in possible:
        known = ", ".join(map(str, possible))
        fixed = possible == (0,)
        yield Problem(
            key="fsx_throughput",
            value=config.fsx_throughput,
            rule=f"{config.fsx_deployment} has a fixed throughput"
            if fixed
            else f"{config.fsx_deployment} has a throughput of {known} MB/s per TiB",
            remedy="remove fsx_throughput, or set fsx_deployment = PERSISTENT_2" if fixed else f"set one of {known}",
        )


def _client(config: ClusterConfig) -> Iterator[Problem]:
    """Reject images that are not Amazon Linux, because the boot installs the Lustre client from its packages.

    An image given by its ID is not checked.
    """
    for role in ("master", "worker"):
        parameter = images.choose(getattr(config, f"{role}_image_parameter"), getattr(config, f"{role}_instance_type"))
        if parameter and images.login_user(parameter) != "ec2-user":
            yield Problem(
                key=f"{role}_image_parameter",
                value=parameter,
                rule="Lustre needs Amazon Linux 2023: the boot installs the client from its packages",
                remedy=f"remove {role}_image_parameter to use Amazon Linux 2023, or set fsx_capacity_gib = 0",
            )


def _link(config: ClusterConfig) -> Iterator[Problem]:
    if config.fsx_export and not config.fsx_s3:
        yield Problem(
            key="fsx_export",
            value=config.fsx_export,
            rule="writes back to fsx_s3, which is empty",
            remedy="set fsx_s3 = s3://BUCKET/PREFIX, or remove fsx_export",
        )


def _mounts(config: ClusterConfig) -> Iterator[Problem]:
    """Check that no mount point hides another.

    Yield a problem for each pair of mount points that are the same, or one within the other.
    """
    found = {"efs_mount": config.efs_mount}
    if config.fsx_capacity_gib:
        found["fsx_mount"] = config.fsx_mount
    if config.scratch_mount:
        found["scratch_mount"] = config.scratch_mount
    for (first, upper), (second, lower) in itertools.combinations(found.items(), 2):
        one, other = PurePosixPath(upper), PurePosixPath(lower)
        if one.is_relative_to(other) or other.is_relative_to(one):
            yield Problem(
                key=second,
                value=lower,
                rule=f"overlaps {first} {upper}: one mount would hide the other",
                remedy="set directories that are not within each other, such as /mnt/NAME",
            )
