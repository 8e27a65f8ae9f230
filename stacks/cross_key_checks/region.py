"""Rules that compare ARNs and zones with the region of the deployment, if it is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stacks.config import ClusterConfig
from stacks.cross_key_checks.problem import Problem

# Keys that may contain an ARN. Auto Scaling, CloudWatch and encrypting services accept only ARNs in the same region.
_KEYS: Final = ("alarm_topic", "kms_key", "capacity_reservation", "flow_logs", "permissions_boundary")
# Prefixes of the regions outside the partition `aws`.
_PARTITIONS: Final = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "eu-isoe-": "aws-iso-e",
    "us-isof-": "aws-iso-f",
    "eusc-": "aws-eusc",
}


def partition_of(region: str) -> str:
    """Return the partition of a region: `aws` for public regions, `aws-cn` for China, and so on."""
    return next((partition for start, partition in _PARTITIONS.items() if region.startswith(start)), "aws")


def check(config: ClusterConfig, region: str) -> Iterator[Problem]:
    """Yield a problem for each zone or ARN that is in another region or partition than the deployment in `region`."""
    for key in _KEYS:
        arn = getattr(config, key)
        if not arn.startswith("arn:"):
            continue
        _, partition, _, place, *_ = arn.split(":")
        if partition != partition_of(region):
            rule = f"is in partition {partition}, but the cluster is in {partition_of(region)}"
            yield _elsewhere(key, arn, rule, region)
        elif place not in ("", region):
            yield _elsewhere(key, arn, f"is in {place}, but the cluster is in {region}", region)

    for zone in config.zones:
        if zone[:-1] != region:
            yield _elsewhere("zones", zone, f"is in {zone[:-1]}, but the cluster is in {region}", region)


def _elsewhere(key: str, arn: str, rule: str, region: str) -> Problem:
    return Problem(
        key=key, value=arn, rule=rule, remedy=f"replace it in {key} by one in {region}, or deploy to another region"
    )
