"""Resource types of Auto Scaling: groups, scaling policies and lifecycle hooks."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.types.handlers import create_and_update, delete_with, shaped
from localcloud.api.cloudformation.types.resource_type import Context, Physical, Properties, ResourceType
from localcloud.api.cloudwatch import GROUP_METRICS

_MIX = "MixedInstancesPolicy"
_ORDER = "nothing has a price here, and a type has room until `localcloud limit`: the order of the types decides"
_LAUNCHED = "what it launches is looked at: see AWS::EC2::LaunchTemplate"
_STEP = frozenset({"PolicyType", "AutoScalingGroupName", "AdjustmentType", "StepAdjustments"})
_GROUP_VALUES = (
    "MinSize",
    "MaxSize",
    "DesiredCapacity",
    "LaunchTemplate",
    "MixedInstancesPolicy",
    "HealthCheckType",
    "HealthCheckGracePeriod",
    "NewInstancesProtectedFromScaleIn",
    "CapacityRebalance",
)


def _group_values(autoscaling: Any, properties: Properties) -> dict[str, Any]:
    values = {key: properties[key] for key in _GROUP_VALUES if key in properties}
    if "Cooldown" in properties:
        values["DefaultCooldown"] = properties["Cooldown"]
    values["VPCZoneIdentifier"] = ",".join(properties["VPCZoneIdentifier"])
    return shaped(autoscaling, "CreateAutoScalingGroup", values)


def _group_tags(context: Context, properties: Properties) -> list[dict[str, Any]]:
    """Return the group's tags; those of CloudFormation and of the stack go on to the instances too."""
    chosen = {
        tag["Key"]: str(tag.get("PropagateAtLaunch", "true")).lower() == "true" for tag in properties.get("Tags") or ()
    }
    return [{**tag, "PropagateAtLaunch": chosen.get(tag["Key"], True)} for tag in context.tags(properties.get("Tags"))]


def _create_group(context: Context, properties: Properties) -> Physical:
    autoscaling = context.aws.client("autoscaling")
    name = properties.get("AutoScalingGroupName") or context.name()
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=name, Tags=_group_tags(context, properties), **_group_values(autoscaling, properties)
    )
    context.report(Physical(id=name))
    _notify(autoscaling, name, properties)
    _collect_metrics(autoscaling, name, properties)
    return Physical(id=name, attributes=_group_attributes(autoscaling, name))


def _collect_metrics(autoscaling: Any, name: str, properties: Properties) -> None:
    """Collect the metrics that the template lists; an empty list disables the collection in moto."""
    metrics: set[str] = set()
    for each in properties.get("MetricsCollection") or ():
        metrics.update(each.get("Metrics") or GROUP_METRICS)
    unknown = sorted(metrics - set(GROUP_METRICS))  # which the service refuses
    known = [each for each in GROUP_METRICS if each in metrics]
    autoscaling.enable_metrics_collection(AutoScalingGroupName=name, Granularity="1Minute", Metrics=[*known, *unknown])


def _notify(autoscaling: Any, name: str, properties: Properties) -> None:
    for each in properties.get("NotificationConfigurations") or ():
        for topic in [each["TopicARN"]] if isinstance(each["TopicARN"], str) else each["TopicARN"]:
            autoscaling.put_notification_configuration(
                AutoScalingGroupName=name, TopicARN=topic, NotificationTypes=each.get("NotificationTypes") or []
            )


def _group_attributes(autoscaling: Any, name: str) -> dict[str, Any]:
    groups = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return {"AutoScalingGroupARN": groups[0]["AutoScalingGroupARN"]}


def _update_group(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Change the group in place: its instances stay, unless its size changes or an UpdatePolicy replaces them."""
    autoscaling = context.aws.client("autoscaling")
    name = resource.id
    values = _group_values(autoscaling, new)
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, **values)
    before = {tag["Key"] for tag in _group_tags(context, old)}
    after = _group_tags(context, new)
    whose = {"ResourceId": name, "ResourceType": "auto-scaling-group"}
    autoscaling.create_or_update_tags(Tags=[{**tag, **whose} for tag in after])
    gone = before - {tag["Key"] for tag in after}
    if gone:
        autoscaling.delete_tags(Tags=[{"Key": key, **whose} for key in sorted(gone)])
    _notify(autoscaling, name, new)
    _collect_metrics(autoscaling, name, new)
    return resource


def _delete_group(context: Context, resource: Physical, properties: Properties) -> None:
    autoscaling = context.aws.client("autoscaling")
    if autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[resource.id])["AutoScalingGroups"]:
        autoscaling.delete_auto_scaling_group(AutoScalingGroupName=resource.id, ForceDelete=True)


def _create_policy(context: Context, properties: Properties) -> Physical:
    return _put_policy(context, properties, context.name())


def _put_policy(context: Context, properties: Properties, name: str) -> Physical:
    autoscaling = context.aws.client("autoscaling")
    values: dict[str, Any] = {"PolicyType": "SimpleScaling"}
    values |= {key: value for key, value in properties.items() if key in _STEP}
    arn = autoscaling.put_scaling_policy(**shaped(autoscaling, "PutScalingPolicy", {**values, "PolicyName": name}))
    return Physical(id=arn["PolicyARN"], attributes={"Arn": arn["PolicyARN"], "PolicyName": name})


def _update_policy(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    return _put_policy(context, new, resource.attributes["PolicyName"])


def _write_hook(context: Context, name: str, properties: Properties) -> Physical:
    autoscaling = context.aws.client("autoscaling")
    keys = ("AutoScalingGroupName", "LifecycleTransition", "HeartbeatTimeout", "DefaultResult")
    values = shaped(autoscaling, "PutLifecycleHook", {key: properties[key] for key in keys if key in properties})
    autoscaling.put_lifecycle_hook(LifecycleHookName=name, **values)
    return Physical(id=name)


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::AutoScaling::AutoScalingGroup",
        rules={
            "AutoScalingGroupName": "unique; ASCII 33 to 126 without a colon",
            "LaunchTemplate": _LAUNCHED,
            "MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification": _LAUNCHED,
            "MetricsCollection": "metrics that Auto Scaling has",
            "NotificationConfigurations": "topics of the group's region",
        },
        named_by="AutoScalingGroupName",
        honoured=frozenset(
            {
                "AutoScalingGroupName",
                "MinSize",
                "MaxSize",
                "DesiredCapacity",
                "LaunchTemplate",
                f"{_MIX}.LaunchTemplate.LaunchTemplateSpecification",
                f"{_MIX}.LaunchTemplate.Overrides.InstanceType",
                f"{_MIX}.InstancesDistribution.OnDemandBaseCapacity",
                f"{_MIX}.InstancesDistribution.OnDemandPercentageAboveBaseCapacity",
                "VPCZoneIdentifier",
                "NewInstancesProtectedFromScaleIn",
                "CapacityRebalance",
                "MetricsCollection",
                "Tags",
            }
        ),
        inert={
            "HealthCheckType": "an instance is found unhealthy as soon as its host is gone",
            "HealthCheckGracePeriod": "an instance is found unhealthy as soon as its host is gone",
            "Cooldown": "step scaling, the only policies here, has no cooldown",
            "NotificationConfigurations": "failed launches are in the activities; no mail leaves the machine",
            f"{_MIX}.InstancesDistribution.OnDemandAllocationStrategy": _ORDER,
            f"{_MIX}.InstancesDistribution.SpotAllocationStrategy": _ORDER,
        },
        refused={
            f"{_MIX}.InstancesDistribution.SpotMaxPrice": "nothing has a price here",
            f"{_MIX}.LaunchTemplate.Overrides.WeightedCapacity": "an instance counts as one here",
        },
        replaced_by=frozenset({"AutoScalingGroupName"}),
        # Only the policy AutoScalingReplacingUpdate would, which is refused.
        perhaps_replaced_by=frozenset({"LaunchTemplate", "MixedInstancesPolicy", "VPCZoneIdentifier"}),
        attributes=frozenset({"AutoScalingGroupARN"}),
        policies=frozenset({"CreationPolicy", "UpdatePolicy"}),
        create=_create_group,
        update=_update_group,
        delete=_delete_group,
    ),
    ResourceType(
        name="AWS::AutoScaling::ScalingPolicy",
        rules={
            "PolicyType": "StepScaling",
            "AutoScalingGroupName": "exists",
            "StepAdjustments": "at least one",
        },
        honoured=_STEP,
        inert={
            "EstimatedInstanceWarmup": "an instance counts as soon as its host is up",
            "MetricAggregationType": "a step is chosen by the alarm's latest value",
        },
        refused={
            "ScalingAdjustment": "only step scaling is carried out here",
            "Cooldown": "only step scaling is carried out here, which has no cooldown",
            "TargetTrackingConfiguration": "only step scaling is carried out here",
            "PredictiveScalingConfiguration": "only step scaling is carried out here",
        },
        attributes=frozenset({"Arn", "PolicyName"}),
        replaced_by=frozenset({"AutoScalingGroupName"}),
        create=_create_policy,
        update=_update_policy,
        delete=delete_with(
            "autoscaling", "delete_policy", None, "AutoScalingGroupName", "PolicyName", gone=("ValidationError",)
        ),
    ),
    ResourceType(
        name="AWS::AutoScaling::LifecycleHook",
        rules={
            "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
        },
        named_by="LifecycleHookName",
        honoured=frozenset(
            {"LifecycleHookName", "AutoScalingGroupName", "LifecycleTransition", "HeartbeatTimeout", "DefaultResult"}
        ),
        refused={"NotificationTargetARN": "instances learn of hooks from their metadata alone"},
        replaced_by=frozenset({"LifecycleHookName", "AutoScalingGroupName"}),
        **create_and_update(_write_hook, "LifecycleHookName"),
        delete=delete_with("autoscaling", "delete_lifecycle_hook", "LifecycleHookName", "AutoScalingGroupName"),
    ),
)
