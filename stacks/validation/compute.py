"""Rules of the nodes: instance types, images, placement, EFA, spot."""

from __future__ import annotations

from collections.abc import Iterator

from stacks import images
from stacks.config import ClusterConfig
from stacks.instance_types import InstanceType, find, nearest, origin
from stacks.validation.problem import Problem


def check(config: ClusterConfig) -> Iterator[Problem]:
    """Yield every rule of the nodes that the configuration breaks."""
    for role in ("master", "worker"):
        yield from _instance_type(config, role)
        yield from _image(config, role)
    yield from _login(config)
    yield from _placement(config)
    yield from _efa(config)
    yield from _spot(config)


def _instance_type(config: ClusterConfig, role: str) -> Iterator[Problem]:
    key = f"{role}_instance_type"
    name = getattr(config, key)
    if find(name) is None and not config.allow_unknown_instance_types:
        near = nearest(name)
        yield Problem(
            key=key,
            value=name,
            rule=f"not in the table of instance types ({origin()}); the nearest is {near}",
            remedy=f"set {near}; for a type that is newer than the table, run `python -m tools.instance_types`; "
            "to deploy it without the checks that need the table, set allow_unknown_instance_types = true",
        )


def _image(config: ClusterConfig, role: str) -> Iterator[Problem]:
    """Compare an image, as far as its parameter's name tells of it, with the instance type and the root volume."""
    key = f"{role}_image_parameter"
    given, name = getattr(config, key), getattr(config, f"{role}_instance_type")
    kind = find(name)
    if kind is None and not config.allow_unknown_instance_types:
        return  # the type itself is the problem
    if not given and not images.default(kind):
        rule = f"empty, and no image is known to fit {name}"
        if kind and kind.gpu_name in images.OLDER_THAN_OPEN_DRIVER:
            rule = f"empty, and AWS's image of today has no driver for the {kind.gpu_name} GPUs of {name}"
        yield Problem(key=key, value=given, rule=rule, remedy="name the SSM parameter of an image that fits the type")
        return
    parameter = images.choose(given, name)
    if kind is not None:
        yield from _fit(key, parameter, kind)
    least_gib = images.smallest_volume_gib(parameter)
    if getattr(config, f"{role}_volume_gib") < least_gib:
        yield Problem(
            key=f"{role}_volume_gib",
            value=getattr(config, f"{role}_volume_gib"),
            rule=f"the image {parameter} takes {least_gib} GiB before anything is written",
            remedy=f"set {role}_volume_gib to {least_gib} or more",
        )


def _fit(key: str, parameter: str, kind: InstanceType) -> Iterator[Problem]:
    built_for = images.architecture(parameter)
    if built_for and built_for not in kind.architectures:
        processor = " or ".join(kind.architectures)
        yield Problem(
            key=key,
            value=parameter,
            rule=f"an image for {built_for}, but {kind.name} has {processor} processors",
            remedy="leave it empty, name an image for that processor, or take another instance type",
        )
    if kind.gpus and images.lacks_gpu_driver(parameter):
        yield Problem(
            key=key,
            value=parameter,
            rule=f"an image without an NVIDIA driver: the {kind.gpus} GPUs of {kind.name} would lie idle",
            remedy="leave it empty, or name an image with the driver",
        )
    if kind.gpu_name in images.OLDER_THAN_OPEN_DRIVER and images.has_open_gpu_driver(parameter):
        yield Problem(
            key=key,
            value=parameter,
            rule=f"NVIDIA's open driver, which this image has, does not know the {kind.gpu_name} GPUs of {kind.name}",
            remedy="name an image with NVIDIA's proprietary driver, or take an instance type with newer GPUs",
        )


def _login(config: ClusterConfig) -> Iterator[Problem]:
    """Check that one user can log in to both images."""
    master = images.login_user(images.choose(config.master_image_parameter, config.master_instance_type))
    worker = images.login_user(images.choose(config.worker_image_parameter, config.worker_instance_type))
    if not config.login_user and master != worker:
        yield Problem(
            key="login_user",
            value=config.login_user,
            rule=f"the master's image has the user {master}, the workers' {worker}; all nodes share one",
            remedy="name images of one publisher, or a login_user that both images have",
        )


def _placement(config: ClusterConfig) -> Iterator[Problem]:
    """Check what a cluster placement group asks of the instance type and the zones."""
    if not config.clustered:
        return
    key = "efa" if config.efa else "placement_group"
    kind = find(config.worker_instance_type)
    if kind is not None and "cluster" not in kind.placements and (not config.efa or kind.efa_interfaces):
        yield Problem(
            key=key,
            value=True,
            rule=f"{kind.name} does not support cluster placement groups",
            remedy=f"set {key} = false, or another worker_instance_type; burstable types (t3, t4g) have none",
        )
    if config.availability_zones > 1:
        yield Problem(
            key="availability_zones",
            value=config.availability_zones,
            rule="a cluster placement group, which efa implies, lies in one zone"
            if config.efa
            else "a cluster placement group lies in one zone",
            remedy=f"set availability_zones = 1, or {key} = false",
        )


def _efa(config: ClusterConfig) -> Iterator[Problem]:
    """Check that the workers' type has EFA devices, and that their number is known."""
    kind = find(config.worker_instance_type)
    if not config.efa or (kind is not None and kind.efa_interfaces):
        return
    yield Problem(
        key="efa",
        value=True,
        rule=f"{config.worker_instance_type} has no EFA"
        if kind
        else f"how many EFA devices {config.worker_instance_type} has is not in the table of instance types",
        remedy="set efa = false, or a type with EFA such as p4d.24xlarge, p5.48xlarge or c5n.18xlarge"
        if kind
        else "run `python -m tools.instance_types` where AWS offers the type, or set efa = false",
    )


def _spot(config: ClusterConfig) -> Iterator[Problem]:
    if config.on_demand_workers and not config.spot:
        yield Problem(
            key="on_demand_workers",
            value=config.on_demand_workers,
            rule="says how many spot workers are on-demand instances nevertheless, but spot is false",
            remedy="set spot = true, or leave it out: without spot all workers are on-demand instances",
        )
