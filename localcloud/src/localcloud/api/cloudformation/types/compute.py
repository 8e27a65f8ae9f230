"""Resource types of instances: launch templates, placement groups, and Auto Scaling."""

from __future__ import annotations

from typing import Any

from localcloud.api.autoscaling.group_rules import GROUP_METRICS
from localcloud.api.cloudformation.types.resource_type import (
    DESCRIPTION,
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
    create_and_update,
    delete_with,
    given,
    names,
    shaped,
    tagged,
)

_DISK = "an instance's root is a view of this machine's, as large as its disk"
_DATA = "LaunchTemplateData"


def _create_template(context: Context, properties: Properties) -> Physical:
    ec2 = context.aws.client("ec2")
    data = shaped(ec2, "CreateLaunchTemplate", {"LaunchTemplateData": properties["LaunchTemplateData"]})
    tags = [each for each in properties.get("TagSpecifications") or () if each.get("ResourceType") == "launch-template"]
    template = ec2.create_launch_template(
        LaunchTemplateName=properties.get("LaunchTemplateName") or context.name(128),
        TagSpecifications=[
            {"ResourceType": "launch-template", "Tags": context.tags(tags[0].get("Tags") if tags else ())}
        ],
        **data,
    )["LaunchTemplate"]
    return _template(template["LaunchTemplateId"], "1", "1")


def _template(template_id: str, default: str, latest: str) -> Physical:
    """Return a launch template as a physical resource. `default` and `latest` are version numbers."""
    attributes = {"LaunchTemplateId": template_id, "DefaultVersionNumber": default, "LatestVersionNumber": latest}
    return Physical(id=template_id, attributes=attributes)


def _update_template(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Create a new version if the data changed. Older versions remain, as well as the instances launched from them.

    The default version stays the first one. Changed tags have no effect.
    """
    if old.get("LaunchTemplateData") == new["LaunchTemplateData"]:
        return resource
    ec2 = context.aws.client("ec2")
    data = shaped(ec2, "CreateLaunchTemplateVersion", {"LaunchTemplateData": new["LaunchTemplateData"]})
    version = ec2.create_launch_template_version(LaunchTemplateId=resource.id, **data)["LaunchTemplateVersion"]
    return _template(resource.id, resource.attributes["DefaultVersionNumber"], str(version["VersionNumber"]))


def _create_placement(context: Context, properties: Properties) -> Physical:
    name = context.name()
    context.aws.client("ec2").create_placement_group(
        GroupName=name,
        Strategy=properties.get("Strategy", "cluster"),
        TagSpecifications=tagged("placement-group", context, properties),
    )
    return Physical(id=name, attributes={"GroupName": name})


_MIX = "MixedInstancesPolicy"
_ORDER = "instances have no prices here, and capacity is unlimited until `localcloud limit`: the order of types decides"
_HOOK = names("AutoScalingGroupName LifecycleTransition HeartbeatTimeout DefaultResult")
_STEP = names("PolicyType AutoScalingGroupName AdjustmentType StepAdjustments")
_GROUP_VALUES = names(
    "MinSize MaxSize DesiredCapacity LaunchTemplate MixedInstancesPolicy HealthCheckType HealthCheckGracePeriod "
    "NewInstancesProtectedFromScaleIn CapacityRebalance"
)


def _group_values(autoscaling: Any, properties: Properties) -> dict[str, Any]:
    """Return a group's properties as parameters of Auto Scaling's API."""
    values = given(properties, _GROUP_VALUES)
    if "Cooldown" in properties:
        values["DefaultCooldown"] = properties["Cooldown"]
    values["VPCZoneIdentifier"] = ",".join(properties["VPCZoneIdentifier"])
    return shaped(autoscaling, "CreateAutoScalingGroup", values)


def _group_tags(context: Context, properties: Properties) -> list[dict[str, Any]]:
    """Return the group's tags in the API's form: the template's, the stack's and CloudFormation's.

    All are propagated to the instances, except tags of the template with PropagateAtLaunch false.
    """
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
    """Enable the group metrics in MetricsCollection: those that an entry names, or all if it names none.

    Without the property, no metric is enabled.
    """
    metrics: set[str] = set()
    for each in properties.get("MetricsCollection") or ():
        metrics.update(each.get("Metrics") or GROUP_METRICS)
    unknown = sorted(metrics - set(GROUP_METRICS))  # the service rejects these
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
    """Update the group in place, with its tags, notifications and metrics.

    Its instances stay unless the group's size changes or an UpdatePolicy replaces them.
    """
    autoscaling = context.aws.client("autoscaling")
    name = resource.id
    values = _group_values(autoscaling, new)
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, **values)
    whose = {"ResourceId": name, "ResourceType": "auto-scaling-group"}
    autoscaling.create_or_update_tags(Tags=[{**tag, **whose} for tag in _group_tags(context, new)])
    if gone := context.lost_tags(old, new):
        autoscaling.delete_tags(Tags=[{"Key": key, **whose} for key in gone])
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
    values = {"PolicyType": "SimpleScaling", **given(properties, _STEP), "PolicyName": name}
    arn = autoscaling.put_scaling_policy(**shaped(autoscaling, "PutScalingPolicy", values))
    return Physical(id=arn["PolicyARN"], attributes={"Arn": arn["PolicyARN"], "PolicyName": name})


def _update_policy(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    return _put_policy(context, new, resource.attributes["PolicyName"])


def _write_hook(context: Context, name: str, properties: Properties) -> Physical:
    autoscaling = context.aws.client("autoscaling")
    values = given(properties, _HOOK)
    autoscaling.put_lifecycle_hook(LifecycleHookName=name, **shaped(autoscaling, "PutLifecycleHook", values))
    return Physical(id=name)


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EC2::LaunchTemplate",
        named_by="LaunchTemplateName",
        honoured=names("LaunchTemplateName TagSpecifications")
        | names(
            "ImageId InstanceType KeyName UserData IamInstanceProfile SecurityGroupIds TagSpecifications "
            "MetadataOptions.HttpTokens DisableApiTermination Placement.GroupName NetworkInterfaces.DeviceIndex "
            "NetworkInterfaces.AssociatePublicIpAddress NetworkInterfaces.Groups",
            below=_DATA,
        ),
        inert={
            "VersionDescription": DESCRIPTION,
            f"{_DATA}.BlockDeviceMappings": f"volumes are shown by the API, but {_DISK}; {NOTHING_TO_ENCRYPT}",
            f"{_DATA}.EbsOptimized": _DISK,
            f"{_DATA}.MetadataOptions.HttpPutResponseHopLimit": "the metadata service is within the host",
            f"{_DATA}.MetadataOptions.HttpEndpoint": "the metadata service is always on, which is AWS's default too",
            f"{_DATA}.MetadataOptions.InstanceMetadataTags": "tags are read through the API here",
            f"{_DATA}.Monitoring": "every host is measured once a minute",
            f"{_DATA}.NetworkInterfaces.DeleteOnTermination": "interfaces always go with their instance",
            f"{_DATA}.NetworkInterfaces.Description": DESCRIPTION,
        },
        refused={
            f"{_DATA}.CapacityReservationSpecification": "its capacity cannot be reserved",
            f"{_DATA}.NetworkInterfaces.InterfaceType": "its hosts have no EFA devices",
            f"{_DATA}.NetworkInterfaces.NetworkCardIndex": "its hosts have one network interface each",
        },
        replaced_by=names("LaunchTemplateName"),
        attributes=names("LaunchTemplateId DefaultVersionNumber LatestVersionNumber"),
        create=_create_template,
        update=_update_template,
        delete=delete_with(
            "ec2",
            "delete_launch_template",
            "LaunchTemplateId",
            gone=("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"),
        ),
    ),
    ResourceType(
        name="AWS::EC2::PlacementGroup",
        honoured=names("Strategy Tags"),
        attributes=names("GroupName"),
        create=_create_placement,
        delete=delete_with("ec2", "delete_placement_group", "GroupName", gone=("InvalidPlacementGroup.Unknown",)),
    ),
    ResourceType(
        name="AWS::AutoScaling::AutoScalingGroup",
        named_by="AutoScalingGroupName",
        honoured=names(
            "AutoScalingGroupName MinSize MaxSize DesiredCapacity LaunchTemplate VPCZoneIdentifier "
            "HealthCheckGracePeriod NewInstancesProtectedFromScaleIn CapacityRebalance MetricsCollection Tags"
        )
        | names("LaunchTemplateSpecification Overrides.InstanceType", below=f"{_MIX}.LaunchTemplate")
        | names("OnDemandBaseCapacity OnDemandPercentageAboveBaseCapacity", below=f"{_MIX}.InstancesDistribution"),
        inert={
            "HealthCheckType": "an instance is found unhealthy as soon as its host is gone",
            "Cooldown": "step scaling, the only policies here, has no cooldown",
            "NotificationConfigurations": "failed launches are in the activities; no mail leaves the machine",
            f"{_MIX}.InstancesDistribution.OnDemandAllocationStrategy": _ORDER,
            f"{_MIX}.InstancesDistribution.SpotAllocationStrategy": _ORDER,
        },
        refused={
            f"{_MIX}.InstancesDistribution.SpotMaxPrice": "its instances have no prices",
            f"{_MIX}.LaunchTemplate.Overrides.WeightedCapacity": "it counts each instance as one",
        },
        replaced_by=names("AutoScalingGroupName"),
        # They would replace the group only with the policy AutoScalingReplacingUpdate, which is rejected.
        perhaps_replaced_by=names("LaunchTemplate MixedInstancesPolicy VPCZoneIdentifier"),
        attributes=names("AutoScalingGroupARN"),
        policies=names("CreationPolicy UpdatePolicy"),
        create=_create_group,
        update=_update_group,
        delete=_delete_group,
    ),
    ResourceType(
        name="AWS::AutoScaling::ScalingPolicy",
        honoured=_STEP,
        inert={
            "EstimatedInstanceWarmup": "an instance counts as soon as its host is up",
            "MetricAggregationType": "a step is chosen by the alarm's latest value",
        },
        refused={
            "ScalingAdjustment": "it only supports step scaling",
            "Cooldown": "it only supports step scaling, which has no cooldown",
            "TargetTrackingConfiguration": "it only supports step scaling",
            "PredictiveScalingConfiguration": "it only supports step scaling",
        },
        attributes=names("Arn PolicyName"),
        replaced_by=names("AutoScalingGroupName"),
        create=_create_policy,
        update=_update_policy,
        delete=delete_with(
            "autoscaling", "delete_policy", None, "AutoScalingGroupName", "PolicyName", gone=("ValidationError",)
        ),
    ),
    ResourceType(
        name="AWS::AutoScaling::LifecycleHook",
        named_by="LifecycleHookName",
        honoured=_HOOK | {"LifecycleHookName"},
        refused={"NotificationTargetARN": "its instances detect hooks only in their metadata"},
        replaced_by=names("LifecycleHookName AutoScalingGroupName"),
        **create_and_update(_write_hook, "LifecycleHookName"),
        delete=delete_with("autoscaling", "delete_lifecycle_hook", "LifecycleHookName", "AutoScalingGroupName"),
    ),
)
