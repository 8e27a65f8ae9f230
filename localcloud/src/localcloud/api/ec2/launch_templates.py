"""Launch templates that EC2 cannot launch.

CreateLaunchTemplate accepts almost everything. Auto Scaling tests the template when a group is created, even an empty
one, and returns EC2's error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moto.ec2.exceptions import EC2ClientError
from moto.iam.models import iam_backends

from localcloud.api import eventual_consistency

Data = Mapping[str, Any]

_GP3_IOPS: Final = 3000
_IOPS_PER_GIB: Final = 500.0
_MIBPS_PER_IOPS: Final = 0.25
_MAX_HOPS: Final = 64


def check(ec2: Any, data: Data) -> None:
    """Raise EC2's error if instances cannot be launched from the data of a launch template's version.

    For example, its image or key pair is unknown, or its parameters contradict each other. Capacity is not checked.
    """
    for refused in (
        _profile(data),
        _interfaces(data),
        _volumes(data),
        _spot(data),
        _metadata(data),
        _exists(ec2, data),
        unknown_profile(ec2, data),
    ):
        for code, message in refused:
            raise EC2ClientError(code, message)


Refusals = Iterator[tuple[str, str]]
"""EC2's error codes and messages."""


def _profile(data: Data) -> Refusals:
    profile = data.get("IamInstanceProfile") or {}
    if profile.get("Arn") and profile.get("Name"):
        yield (
            "InvalidParameterCombination",
            "The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'",
        )


def _interfaces(data: Data) -> Refusals:
    interfaces = data.get("NetworkInterfaces") or ()
    if interfaces and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
        yield (
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        )
    for each in interfaces:
        if each.get("AssociatePublicIpAddress") is not None and int(each.get("DeviceIndex") or 0) != 0:
            yield (
                "InvalidParameterValue",
                "The associatePublicIPAddress parameter can only be specified for the network interface with "
                "DeviceIndex 0.",
            )


def _volumes(data: Data) -> Refusals:
    for mapping in data.get("BlockDeviceMappings") or ():
        volume = mapping.get("Ebs") or {}
        if volume.get("KmsKeyId") and not volume.get("Encrypted"):
            yield (
                "InvalidParameterDependency",
                "The parameter [KmsKeyId] requires the parameter Encrypted to be set.",
            )
        if volume.get("VolumeType") == "gp3":
            yield from _gp3(volume)


def _gp3(volume: Data) -> Refusals:
    iops = int(volume.get("Iops") or _GP3_IOPS)
    size = int(volume.get("VolumeSize") or 0)
    if size and iops > _GP3_IOPS and iops / size > _IOPS_PER_GIB:
        yield (
            "InvalidParameterValue",
            f"Iops to volume size ratio of {iops / size:.6f} is too high; maximum is {_IOPS_PER_GIB:.0f}",
        )
    ratio = int(volume.get("Throughput") or 0) / iops
    if ratio > _MIBPS_PER_IOPS:
        yield (
            "InvalidParameterValue",
            f"Throughput (MiBps) to iops ratio of {ratio:.6f} is too high; maximum is {_MIBPS_PER_IOPS:.6f} MiBps per "
            "iops.",
        )


def _spot(data: Data) -> Refusals:
    options = (data.get("InstanceMarketOptions") or {}).get("SpotOptions") or {}
    if options.get("SpotInstanceType", "one-time") != "one-time" or options.get("BlockDurationMinutes"):
        yield (
            "InvalidQueryParameter",
            "Incompatible launch template: Auto Scaling only supports the 'one-time' Spot instance type with no "
            "duration.",
        )


def _metadata(data: Data) -> Refusals:
    limit = (data.get("MetadataOptions") or {}).get("HttpPutResponseHopLimit")
    if limit is not None and not 1 <= int(limit) <= _MAX_HOPS:
        # The bounds are in the API reference; AWS's error text is not known.
        yield "InvalidParameterValue", f"HttpPutResponseHopLimit {limit}: must be 1 to {_MAX_HOPS}"


def _exists(ec2: Any, data: Data) -> Refusals:
    key, image = data.get("KeyName"), data.get("ImageId")
    if key and key not in ec2.key_pairs:
        yield "InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist"
    if image and image not in ec2.amis:
        yield "InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist"


def unknown_profile(ec2: Any, data: Data) -> Refusals:
    """Yield code and message of EC2's error if a launch template's instance profile is unknown.

    A profile is also unknown while it or its role is still propagating. Yields nothing for a template without profile.
    """
    given = data.get("IamInstanceProfile") or {}
    profiles = iam_backends[ec2.account_id][ec2.partition].instance_profiles.values()
    for key, attribute, noun in (("Name", "name", "name"), ("Arn", "arn", "ARN")):
        value = given.get(key)
        found = next((each for each in profiles if value and getattr(each, attribute) == value), None)
        if value and (found is None or any(map(eventual_consistency.is_propagating, [found, *found.roles]))):
            yield (
                "InvalidParameterValue",
                f"Value ({value}) for parameter iamInstanceProfile.{attribute} is invalid. "
                f"Invalid IAM Instance Profile {noun}",
            )
