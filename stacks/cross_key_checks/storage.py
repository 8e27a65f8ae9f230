"""Rules for the shared file system and the run bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stacks.config import ClusterConfig
from stacks.cross_key_checks import lustre
from stacks.cross_key_checks.problem import Problem, unused

# Keys that apply only to a file system that the stack creates.
_OF_A_NEW_FILE_SYSTEM: Final = (
    "efs_throughput",
    "efs_throughput_mibps",
    "efs_performance",
    "efs_infrequent_after_days",
    "efs_archive_after_days",
    "efs_backup",
)

# IAM's limit for a managed policy, in characters without blanks, and the characters that a bucket's ARN and a statement
# need besides the name. stacks/node_roles.py makes one statement for the objects of all buckets in a key.
_POLICY_LIMIT: Final = 6144
_ARN_CHARACTERS: Final = len('"arn:aws-us-gov:s3:::/*",')
_STATEMENT_CHARACTERS: Final = 200


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with the shared file systems, their mount points and the buckets."""
    if config.file_system_id:
        yield from _existing(config)
    else:
        yield from _throughput(config)
        yield from _classes(config)
    yield from _versions(config)
    yield from _policy("data_buckets", config.readable_buckets)
    yield from _policy("checkpoint_buckets", config.checkpoint_buckets)
    yield from lustre.check(config)


def _existing(config: ClusterConfig) -> Iterator[Problem]:
    """Reject keys of a new file system together with an existing one, because they would have no effect."""
    for key in _OF_A_NEW_FILE_SYSTEM:
        if getattr(config, key) != getattr(type(config), key):
            yield Problem(
                key=key,
                value=getattr(config, key),
                rule=f"has no effect on the existing file system {config.file_system_id} (file_system_id)",
                remedy=f"remove {key} and configure {config.file_system_id} yourself, or remove file_system_id",
            )


def _throughput(config: ClusterConfig) -> Iterator[Problem]:
    provisioned = config.efs_throughput == "provisioned"
    if provisioned and not config.efs_throughput_mibps:
        yield Problem(
            key="efs_throughput_mibps",
            value=config.efs_throughput_mibps,
            rule="must be set with efs_throughput = provisioned",
            remedy="set the MiB/s to provision, or set efs_throughput = bursting or elastic",
        )
    if not provisioned:
        why = f"with efs_throughput = {config.efs_throughput}"
        yield from unused(config, ["efs_throughput_mibps"], why, "set efs_throughput = provisioned")
    if config.efs_performance == "maxIO" and config.efs_throughput == "elastic":
        yield Problem(
            key="efs_performance",
            value=config.efs_performance,
            rule="EFS does not support elastic throughput with maxIO",
            remedy="remove efs_performance, or set efs_throughput = bursting or provisioned",
        )


def _classes(config: ClusterConfig) -> Iterator[Problem]:
    """Check the keys for a file system that moves files to Archive.

    It must have elastic throughput, and move files to Infrequent Access earlier.
    """
    days = config.efs_archive_after_days
    if not days:
        return
    if config.efs_throughput != "elastic":
        yield Problem(
            key="efs_archive_after_days",
            value=days,
            rule=f"Archive needs elastic throughput, but efs_throughput is {config.efs_throughput}",
            remedy="set efs_throughput = elastic, or efs_archive_after_days = 0",
        )
    if not 0 < config.efs_infrequent_after_days < days:
        yield Problem(
            key="efs_archive_after_days",
            value=days,
            rule="EFS moves files to Archive only from Infrequent Access, "
            f"but efs_infrequent_after_days is {config.efs_infrequent_after_days}",
            remedy=f"set efs_infrequent_after_days to less than {days}, but not 0; or set efs_archive_after_days = 0",
        )


def _versions(config: ClusterConfig) -> Iterator[Problem]:
    """Reject an expiry of older versions if there are none. The default value is permitted, and 0."""
    if config.bucket_expire_versions_days and not config.bucket_versioning:
        why = "with bucket_versioning = false"
        yield from unused(config, ["bucket_expire_versions_days"], why, "set bucket_versioning = true")


def _policy(key: str, buckets: tuple[str, ...]) -> Iterator[Problem]:
    """Yield a problem if more buckets are listed under `key` than fit into a role's policy."""
    size = _STATEMENT_CHARACTERS + sum(len(name) + _ARN_CHARACTERS for name in buckets)
    if size > _POLICY_LIMIT:
        yield Problem(
            key=key,
            value=f"{len(buckets)} buckets",
            rule=f"needs about {size:,} characters in a policy, but IAM's limit is {_POLICY_LIMIT:,}",
            remedy="list fewer buckets, for example only those in use",
        )
