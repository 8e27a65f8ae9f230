"""Instances launched from launch templates, and their console output.

AWS uses a launch template for everything that a launch does not set itself. moto uses its image, type, user data, key
pair and security groups. It ignores the network interface, instance profile, metadata options and market options.
moto's console output is always that of one machine of 2006.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError, OperationNotPermitted4
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.responses import EC2Response
from moto.ec2.responses.general import General
from moto.ec2.responses.instances import InstanceResponse

from localcloud.api import service_quotas
from localcloud.api.autoscaling.instance_choice import AS_THE_TEMPLATE_SAYS, Purchase, check_room
from localcloud.api.ec2 import placement_groups
from localcloud.api.monkeypatch import added, around, first, instead


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """Properties shared by all instances of one launch."""

    template_id: str
    version: str
    """A number, `$Latest` or `$Default`."""
    purchase: Purchase = AS_THE_TEMPLATE_SAYS
    tags: Mapping[str, str] = dataclasses.field(default_factory=dict)


def launch(ec2: Any, what: Launch, subnet_id: str, count: int) -> list[Any]:
    """Launch `count` instances of a template into a subnet; return moto's instances.

    Raises EC2's errors like RunInstances: for missing capacity, an exceeded quota, an unknown key pair, group, profile
    or placement group, or a spot instance with termination protection. A template with several network interfaces is
    rejected. After an error, instances may exist: see `failed_calls.mark`.
    """
    version = ec2.get_launch_template(what.template_id).get_version(what.version)
    data: Mapping[str, Any] = version.data
    interfaces = list(data.get("NetworkInterfaces") or ())
    if len(interfaces) > 1:
        raise EC2ClientError(
            "UnsupportedOperation",
            f"The embedded cloud only supports one network interface per instance, but launch template "
            f"{what.template_id} has {len(interfaces)}.",
        )
    interface: Mapping[str, Any] = interfaces[0] if interfaces else {}
    groups = list(interface.get("Groups") or data.get("SecurityGroupIds") or data.get("SecurityGroups") or ())
    public = interface.get("AssociatePublicIpAddress")
    if public is None:
        public = ec2.get_subnet(subnet_id).map_public_ip_on_launch
    key_name = data.get("KeyName")
    if key_name and key_name not in ec2.key_pairs:
        raise EC2ClientError("InvalidKeyPair.NotFound", f"The key pair '{key_name}' does not exist")
    instance_type = what.purchase.instance_type or data.get("InstanceType") or "m1.small"
    check_room(ec2, instance_type, ec2.get_subnet(subnet_id).availability_zone)
    placement_group = placement_groups.admit(ec2, data.get("Placement") or {}, instance_type, subnet_id)
    if what.purchase.spot and _truth(data.get("DisableApiTermination")):
        # The rule is in EC2's user guide; the error code is not known.
        raise EC2ClientError(
            "InvalidParameterCombination", "You can't enable termination protection for Spot Instances."
        )
    market = "spot" if what.purchase.spot else (data.get("InstanceMarketOptions") or {}).get("MarketType")
    reservation = ec2.run_instances(
        data.get("ImageId", ""),
        count,
        data.get("UserData"),
        groups,
        instance_type=instance_type,
        is_instance_type_default=False,
        key_name=key_name,
        subnet_id=subnet_id,
        region_name=ec2.region_name,
        associate_public_ip=_truth(public),
        launch_template={"LaunchTemplateId": what.template_id, "Version": str(version.number)},
        metadata_options=_with_values(data.get("MetadataOptions") or {}),
        disable_api_termination=_truth(data.get("DisableApiTermination")),
        tags={"instance": dict(what.tags), "volume": _tags_of(data, "volume")},
        **({"instance_market_options": market} if market else {}),
    )
    profile = data.get("IamInstanceProfile") or {}
    for instance in reservation.instances:
        instance.placement.group_name = placement_group
        if profile:
            ec2.associate_iam_instance_profile(
                instance.id, iam_instance_profile_name=profile.get("Name"), iam_instance_profile_arn=profile.get("Arn")
            )
    return list(reservation.instances)


def _truth(value: Any) -> bool:
    return value is True or str(value).lower() == "true"


def _with_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that have a value."""
    return {key: value for key, value in options.items() if value is not None}


def _tags_of(data: Mapping[str, Any], resource_type: str) -> dict[str, str]:
    """Return a launch template's tags for a type of resource."""
    return {
        tag["Key"]: tag["Value"]
        for specification in data.get("TagSpecifications") or ()
        if specification.get("ResourceType") == resource_type
        for tag in specification.get("Tags") or specification.get("Tag") or ()
    }


class Console:
    """Stores the console output of the instances."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._texts: dict[str, list[tuple[float, str]]] = {}
        """By instance, each output with the time from which it can be read, oldest first."""

    def write(self, instance_id: str, text: str, late_s: float = 0.0) -> None:
        """Replace the whole output of an instance's console. `read` returns `text` after `late_s` seconds."""
        self._texts[instance_id] = [*self._readable(instance_id), (self._clock() + late_s, text)]

    def read(self, instance_id: str) -> str | None:
        """Return the newest output of an instance's console whose delay is over, or None if there is none yet."""
        found = self._texts[instance_id] = self._readable(instance_id)
        return found[0][1] if found and found[0][0] <= self._clock() else None

    def _readable(self, instance_id: str) -> list[tuple[float, str]]:
        """Return the newest readable output, if any, followed by later ones."""
        found, now = self._texts.get(instance_id, []), self._clock()
        read = sum(since <= now for since, _ in found)
        return found[max(0, read - 1) :]


CONSOLE: Final = Console()
"""The consoles of all instances."""


@instead(General, "get_console_output")
def _get_console_output(self: General) -> ActionResult:
    instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
    xen = INSTANCE_TYPES.get(instance.instance_type, {}).get("Hypervisor") == "xen"
    if xen and _truth(self._get_param("Latest")):
        # "This option is supported on instance types that use the Nitro hypervisor" (API reference).
        raise EC2ClientError(
            "UnsupportedOperation", "This instance type does not support retrieving the latest console logs."
        )
    result = {"InstanceId": instance.id, "Timestamp": utcnow()}
    if text := CONSOLE.read(instance.id):  # AWS omits the field if there is no output yet.
        result["Output"] = Base64EncodedString.from_raw_string(text)
    return ActionResult(result)


def reboots(instance: Any) -> int:
    """Return how often an instance was rebooted by RebootInstances."""
    return int(getattr(instance, "localcloud_reboots", 0))


@around(Instance, "reboot")
def _reboot(original: Any, self: Any) -> None:
    """Reboot an instance, and count the reboot. moto only sets the state, which is `running` before and after."""
    original(self)
    self.localcloud_reboots = reboots(self) + 1


@around(InstanceBackend, "run_instances")
def _run_instances(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Launch instances within the account's vCPU quotas, with the launch template's volumes and market.

    Instances in a Capacity Block do not count towards the quotas. moto alone would launch them as spot instances, and
    would add an 8 GiB volume to the template's volumes.
    """
    given, template = kwargs.get("launch_template"), {}
    if given:
        template = self._get_template_from_args(given).data
    if given and "block_device_mappings" not in kwargs:
        usable = [mapping for mapping in template.get("BlockDeviceMappings") or () if mapping.get("Ebs")]
        if usable:
            kwargs["block_device_mappings"] = usable
    instance_type = str(kwargs.get("instance_type") or "")
    if kwargs.get("is_instance_type_default"):
        instance_type = template.get("InstanceType") or instance_type
    market = kwargs.get("instance_market_options") or kwargs.get("lifecycle")
    if not market and (market := (template.get("InstanceMarketOptions") or {}).get("MarketType")):
        kwargs["instance_market_options"] = market
    if market != service_quotas.CAPACITY_BLOCK:
        count = args[1] if len(args) > 1 else kwargs["count"]
        service_quotas.check_vcpus(self, [instance_type] * int(count), spot=market == "spot")
    made = original(self, *args, **kwargs)
    if market == service_quotas.CAPACITY_BLOCK:  # moto treats it as spot
        for instance in made.instances:
            instance.lifecycle = service_quotas.CAPACITY_BLOCK
    return made


@first(InstanceBackend, "terminate_instances")
def _unprotect(ec2: Any, instance_ids: list[str]) -> None:
    """Remove the termination protection of instances before they are terminated.

    Auto Scaling terminates protected instances on AWS too. Only EC2's own action rejects them.
    """
    for instance in ec2.get_multi_instances_by_id(instance_ids) if instance_ids else ():
        instance.disable_api_termination = False


@first(InstanceResponse, "terminate_instances")
def _check_protection(responses: Any) -> None:
    for instance in responses.ec2_backend.get_multi_instances_by_id(responses._get_param("InstanceIds", [])):
        if instance.disable_api_termination:
            raise OperationNotPermitted4(instance.id)


@added(EC2Response, "describe_capacity_reservations")
def describe_capacity_reservations(self: Any) -> ActionResult:
    """Answer DescribeCapacityReservations with an empty list, because there are none. Reject any given id."""
    for unknown in self._get_param("CapacityReservationIds", []):
        raise EC2ClientError(
            "InvalidCapacityReservationId.NotFound", f"The capacity reservation ID {unknown} does not exist"
        )
    return ActionResult({"CapacityReservations": []})
