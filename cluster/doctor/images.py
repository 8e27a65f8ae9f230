"""Checks of the nodes' machine images."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cluster.aws.errors import aws_errors
from cluster.doctor.finding import FAIL, OK, WARN, Finding, Subject, finding
from stacks import images
from stacks.config import MASTER, WORKER, ClusterConfig
from stacks.instance_types import find

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import FilterTypeDef

ROLES = (MASTER, WORKER)


def image(subject: Subject) -> Iterator[Finding]:
    """Check that the images exist, by id or by parameter, and fit the instance types and volumes.

    Yields one finding for each role. Raises AwsError.
    """
    config = subject.config
    wanted = {role: images.image(config, role) for role in ROLES}
    parameters = sorted({each.parameter for each in wanted.values() if each.parameter})
    with aws_errors("reading the image parameters"):
        entries = subject.aws.client("ssm").get_parameters(Names=parameters)["Parameters"] if parameters else []
    ids = {each["Name"]: each["Value"] for each in entries}
    chosen = {role: each.id or ids.get(each.parameter, "") for role, each in wanted.items()}
    with aws_errors("describing the images"):
        # Use a filter, because naming a missing id is an error.
        named = sorted({each for each in chosen.values() if each} or {"none"})
        wanted_ids: list[FilterTypeDef] = [{"Name": "image-id", "Values": named}]
        answer = subject.aws.client("ec2").describe_images(Filters=wanted_ids, IncludeDeprecated=True)
    found = {each["ImageId"]: each for each in answer["Images"]}
    now = datetime.datetime.now(datetime.UTC)
    for role, each in wanted.items():
        yield judge_image(config, role, each, chosen[role], found.get(chosen[role]), now)


def _types(config: ClusterConfig, role: str) -> tuple[str, ...]:
    return (config.master_instance_type,) if role == MASTER else config.worker_types


def judge_image(
    config: ClusterConfig,
    role: str,
    wanted: images.Image,
    image_id: str,
    described: Mapping[str, Any] | None,
    now: datetime.datetime,
) -> Finding:
    """Judge the image of a role. The first problem is reported.

    Only a warning: the volume may be too small for the runtime, or the image is deprecated. `image_id` is "" if the
    parameter of the image does not exist. `described` is the image's entry of DescribeImages, None if the account
    cannot see the image. `now` is compared with the date of its deprecation.
    """
    found = functools.partial(finding, f"{role} image")

    key = f"{role}_image_id" if wanted.id else f"{role}_image_parameter"
    parameter = wanted.parameter
    if not image_id:
        remedy = (
            f"set {key} to a parameter of this region; `aws ssm get-parameters-by-path --path /aws/service/...` "
            "lists them"
        )
        return found(FAIL, f"parameter {parameter} does not exist in this region", remedy)
    if described is None:
        what = f"{parameter} names {image_id}, which" if parameter else image_id
        return found(FAIL, f"{what} is not visible to this account in this region", f"set another {key}")
    if described.get("State", "available") != "available":
        return found(FAIL, f"{image_id} is {described['State']}", f"set another {key}")
    built_for = described.get("Architecture", "")
    for kind in filter(None, map(find, _types(config, role))):
        if built_for not in kind.architectures:
            processors = " or ".join(kind.architectures)
            return found(FAIL, f"{image_id} is for {built_for}, but {kind.name} has {processors}", f"set another {key}")
    root = described.get("RootDeviceName", wanted.root_device)
    if root != wanted.root_device:
        what = f"the root device of {image_id} is {root}, so {wanted.root_device} would become a second, empty volume"
        return found(FAIL, what, f"set {role}_root_device = {root}")
    needs_gib, has_gib = _root_gib(described), getattr(config, f"{role}_volume_gib")
    if needs_gib > has_gib:
        remedy = f"set {role}_volume_gib to {needs_gib} or more"
        return found(FAIL, f"{image_id} needs {needs_gib} GiB, but {role}_volume_gib is {has_gib}", remedy)
    runtime_gib = images.runtime_gib(role, _types(config, role)[0])
    # A caution of the configuration reports volumes that are known to be too small from the image's name.
    if images.smallest_volume_gib(parameter) <= has_gib - runtime_gib < needs_gib:
        what = (
            f"{image_id} may fill {needs_gib} of {has_gib} GiB, and the runtime needs {runtime_gib} GiB, so installing "
            "packages may fail"
        )
        return found(WARN, what, f"set {role}_volume_gib to {needs_gib + runtime_gib} or more")
    ends = str(described.get("DeprecationTime") or "")
    if ends and datetime.datetime.fromisoformat(ends) <= now:
        return found(WARN, f"{image_id} is deprecated since {ends[:10]}", f"set another {key}, or leave it empty")
    return found(OK, f"{image_id} ({described.get('Name') or parameter}), {built_for or 'of unknown architecture'}")


def _root_gib(described: Mapping[str, Any]) -> int:
    """Return the size of an image's root volume, GiB; 0 if unknown."""
    root = described.get("RootDeviceName")
    sizes = [
        int(mapping.get("Ebs", {}).get("VolumeSize") or 0)
        for mapping in described.get("BlockDeviceMappings", ())
        if mapping.get("DeviceName") == root
    ]
    return max(sizes, default=0)
