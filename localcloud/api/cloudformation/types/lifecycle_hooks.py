"""Resource type of lifecycle hooks: what instances of an Auto Scaling group may still do before they end."""

from __future__ import annotations

from localcloud.api.cloudformation.types.resource_type import Kind, Made, Place, Properties, shaped


def _put_hook(place: Place, properties: Properties) -> Made:
    name = properties.get("LifecycleHookName") or place.name()
    return _write_hook(place, name, properties)


def _write_hook(place: Place, name: str, properties: Properties) -> Made:
    autoscaling = place.aws.client("autoscaling")
    keys = ("AutoScalingGroupName", "LifecycleTransition", "HeartbeatTimeout", "DefaultResult")
    values = shaped(autoscaling, "PutLifecycleHook", {key: properties[key] for key in keys if key in properties})
    autoscaling.put_lifecycle_hook(LifecycleHookName=name, **values)
    return Made(physical_id=name)


def _update_hook(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    del old
    return _write_hook(place, made.physical_id, new)


def _delete_hook(place: Place, made: Made, properties: Properties) -> None:
    place.aws.client("autoscaling").delete_lifecycle_hook(
        LifecycleHookName=made.physical_id, AutoScalingGroupName=properties["AutoScalingGroupName"]
    )


KINDS = (
    Kind(
        type="AWS::AutoScaling::LifecycleHook",
        carried_out=frozenset(
            {"LifecycleHookName", "AutoScalingGroupName", "LifecycleTransition", "HeartbeatTimeout", "DefaultResult"}
        ),
        refused={"NotificationTargetARN": "its hooks are told by instance metadata alone"},
        replaced_by=frozenset({"LifecycleHookName", "AutoScalingGroupName"}),
        create=_put_hook,
        update=_update_hook,
        delete=_delete_hook,
    ),
)
