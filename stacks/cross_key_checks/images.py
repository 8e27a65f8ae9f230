"""Rules for the images and for the root volumes that are made from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from stacks import images
from stacks.config import MASTER, WORKER, ClusterConfig
from stacks.config_keys.compute import BASE_IOPS
from stacks.cross_key_checks.problem import Problem
from stacks.instance_types import InstanceType, find

# Limits of gp3 volumes (EBS user guide, "General Purpose SSD volumes"), in addition to the limits in
# stacks.config_keys.compute.
IOPS_PER_GIB: Final = 500
MIB_S_PER_IOPS: Final = 0.25


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield all problems with images, root volumes and the images' login user."""
    for role in (MASTER, WORKER):
        yield from _image(config, role)
        yield from _volume(config, role)
    yield from _login(config)


def cautions(config: ClusterConfig) -> Iterator[Problem]:
    """Yield a caution for each volume that a Deep Learning image may leave too full for the runtime."""
    for role in (MASTER, WORKER):
        name, gib = getattr(config, f"{role}_instance_type"), getattr(config, f"{role}_volume_gib")
        parameter = images.choose(getattr(config, f"{role}_image_parameter"), name)
        taken_gib, needed_gib = images.smallest_volume_gib(parameter), images.runtime_gib(role, name)
        # The size of an image given by its ID is checked by `fab doctor` and `fab up`.
        is_known = taken_gib == images.DEEP_LEARNING_GIB and not getattr(config, f"{role}_image_id")
        if is_known and gib < taken_gib + needed_gib:
            yield Problem(
                key=f"{role}_volume_gib",
                value=gib,
                rule=f"the image takes up to {taken_gib} GiB and the runtime {needed_gib}, so that installing may fail",
                remedy=f"set {role}_volume_gib to at least {taken_gib + needed_gib}, and more for your own packages",
            )


def _image(config: ClusterConfig, role: str) -> Iterator[Problem]:
    """Check that a role has an image that fits its instance type and root volume, and that has or gets Python.

    An image given by its ID is checked by `_image_by_id` instead. If the type is rejected as unknown, the image is not
    checked.
    """
    key = f"{role}_image_parameter"
    given, name = getattr(config, key), getattr(config, f"{role}_instance_type")
    kind = find(name)
    if getattr(config, f"{role}_image_id"):
        yield from _image_by_id(config, role)
        return
    if kind is None and not config.allow_unknown_instance_types:
        return  # the problem is the type itself
    if not given and not images.default(kind):
        rule = f"empty, and deepcdk knows no image for {name}"
        if kind and kind.gpu_name in images.OLDER_THAN_OPEN_DRIVER:
            rule = f"empty, and AWS's current image has no driver for the {kind.gpu_name} GPUs of {name}"
        yield Problem(
            key=key, value=given, rule=rule, remedy="set it to the name of the SSM parameter of an image for this type"
        )
        return
    parameter = images.choose(given, name)
    yield from _python(key, parameter)
    if kind is not None:
        yield from _fit(key, parameter, kind)
    least_gib = images.smallest_volume_gib(parameter)
    if getattr(config, f"{role}_volume_gib") < least_gib:
        yield Problem(
            key=f"{role}_volume_gib",
            value=getattr(config, f"{role}_volume_gib"),
            rule=f"the image {parameter} alone takes {least_gib} GiB",
            remedy=f"set {role}_volume_gib to {least_gib} or more",
        )


def _image_by_id(config: ClusterConfig, role: str) -> Iterator[Problem]:
    """Check the keys of an image that is given by its ID.

    The key for the image's SSM parameter must be empty. The key for the root device is required, because deepcdk
    derives the device's name only from an SSM parameter.
    """
    key, id = f"{role}_image_id", getattr(config, f"{role}_image_id")
    parameter = f"{role}_image_parameter"
    if getattr(config, parameter):
        yield Problem(
            key=key,
            value=id,
            rule=f"{parameter} names an image too",
            remedy=f"set only one of {key} and {parameter}",
        )
    device = f"{role}_root_device"
    if not getattr(config, device):
        yield Problem(
            key=device,
            value="",
            rule=f"empty, but the name of the root device of {id} is needed: with a wrong name, the image's root "
            "volume would stay unencrypted and keep its size",
            remedy=f"set {device} to the output of "
            f"`aws ec2 describe-images --image-ids {id} --query 'Images[0].RootDeviceName'`",
        )


def _python(key: str, parameter: str) -> Iterator[Problem]:
    """Reject an image if the boot neither finds nor installs a suitable Python on it.

    `key` is the key in cdk.json that names the image, `parameter` the image's SSM parameter.
    """
    if release := images.release_without_python(parameter):
        yield Problem(
            key=key,
            value=parameter,
            rule=f"nodes need Python 3.11, 3.12 or 3.13, and deepcdk cannot install any of them on {release}",
            remedy=f"leave {key} empty, or name an image of Amazon Linux 2023, Ubuntu 24.04, Debian 12 or 13",
        )


def _fit(key: str, parameter: str, kind: InstanceType) -> Iterator[Problem]:
    built_for = images.architecture(parameter)
    if built_for and built_for not in kind.architectures:
        processor = " or ".join(kind.architectures)
        yield Problem(
            key=key,
            value=parameter,
            rule=f"an image for {built_for}, but {kind.name} has {processor} processors",
            remedy=f"leave {key} empty, name an image for {processor}, or use another instance type",
        )
    if kind.gpus and images.lacks_gpu_driver(parameter):
        yield Problem(
            key=key,
            value=parameter,
            rule=f"an image without an NVIDIA driver: the {kind.gpus} GPUs of {kind.name} would be idle",
            remedy=f"leave {key} empty, or name an image with the driver",
        )
    if kind.gpu_name in images.OLDER_THAN_OPEN_DRIVER and images.has_open_gpu_driver(parameter):
        yield Problem(
            key=key,
            value=parameter,
            rule=f"this image has NVIDIA's open driver, which does not support the {kind.gpu_name} GPUs of {kind.name}",
            remedy="name an image with NVIDIA's proprietary driver, or use an instance type with newer GPUs",
        )


def _volume(config: ClusterConfig, role: str) -> Iterator[Problem]:
    """Check gp3's limits: at most 500 IOPS per GiB, and 0.25 MiB/s per IOPS."""
    keys = (f"{role}_volume_gib", f"{role}_volume_iops", f"{role}_volume_mib_s")
    gib, iops, mib_s = (getattr(config, key) for key in keys)
    if iops > max(BASE_IOPS, gib * IOPS_PER_GIB):
        yield Problem(
            key=keys[1],
            value=iops,
            rule=f"gp3 has at most {IOPS_PER_GIB} IOPS per GiB: {gib * IOPS_PER_GIB:,} for {gib} GiB",
            remedy=f"set {keys[0]} to {math.ceil(iops / IOPS_PER_GIB)} or more, or lower {keys[1]}",
        )
    if mib_s > iops * MIB_S_PER_IOPS:
        yield Problem(
            key=keys[2],
            value=mib_s,
            rule=f"gp3 has at most {MIB_S_PER_IOPS} MiB/s per IOPS: {iops * MIB_S_PER_IOPS:g} for {iops:,} IOPS",
            remedy=f"set {keys[1]} to {math.ceil(mib_s / MIB_S_PER_IOPS)} or more, or lower {keys[2]}",
        )


def _login(config: ClusterConfig) -> Iterator[Problem]:
    """Check that the same user can log in to both images, unless login_user is set.

    If an image is given by its ID, login_user must be set.
    """
    master = images.login_user(images.choose(config.master_image_parameter, config.master_instance_type))
    worker = images.login_user(images.choose(config.worker_image_parameter, config.worker_instance_type))
    if config.login_user:
        return
    if config.worker_image_id or config.master_image_id:
        yield Problem(
            key="login_user",
            value="",
            rule="empty, but with the ID of an image, the name of its login user is needed",
            remedy="set login_user, for example ec2-user (Amazon Linux) or ubuntu",
        )
    elif master != worker:
        yield Problem(
            key="login_user",
            value=config.login_user,
            rule=f"the master's image has the login user {master}, and the workers' image has {worker}; all nodes need "
            "the same one",
            remedy="name images of one publisher, or set a login_user that both images have",
        )
