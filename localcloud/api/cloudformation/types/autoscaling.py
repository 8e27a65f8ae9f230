"""Resource types of computing: launch templates and Auto Scaling groups."""

from __future__ import annotations

from typing import Any

from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.types.resource_type import (
    DESCRIPTION,
    NOTHING_TO_ENCRYPT,
    Kind,
    Made,
    Place,
    Properties,
    shaped,
    tagged,
    unless_gone,
)
from localcloud.api.cloudwatch import GROUP_METRICS

_DISK = "an instance's root is a view of this machine's, as large as its disk"


def _create_template(place: Place, properties: Properties) -> Made:
    ec2 = place.aws.client("ec2")
    data = shaped(ec2, "CreateLaunchTemplate", {"LaunchTemplateData": properties["LaunchTemplateData"]})
    tags = [each for each in properties.get("TagSpecifications") or () if each.get("ResourceType") == "launch-template"]
    template = ec2.create_launch_template(
        LaunchTemplateName=properties.get("LaunchTemplateName") or place.name(128),
        TagSpecifications=[
            {"ResourceType": "launch-template", "Tags": place.tags(tags[0].get("Tags") if tags else ())}
        ],
        **data,
    )["LaunchTemplate"]
    return _template(template["LaunchTemplateId"], "1", "1")


def _template(template_id: str, default: str, latest: str) -> Made:
    attributes = {"LaunchTemplateId": template_id, "DefaultVersionNumber": default, "LatestVersionNumber": latest}
    return Made(physical_id=template_id, attributes=attributes)


def _update_template(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    """Add a version where the data changed; the versions before stay, and with them the instances made from them."""
    if old.get("LaunchTemplateData") == new["LaunchTemplateData"]:
        return made
    ec2 = place.aws.client("ec2")
    data = shaped(ec2, "CreateLaunchTemplateVersion", {"LaunchTemplateData": new["LaunchTemplateData"]})
    version = ec2.create_launch_template_version(LaunchTemplateId=made.physical_id, **data)["LaunchTemplateVersion"]
    return _template(made.physical_id, made.attributes["DefaultVersionNumber"], str(version["VersionNumber"]))


def _delete_template(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(
        ("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"),
        place.aws.client("ec2").delete_launch_template,
        LaunchTemplateId=made.physical_id,
    )


def _create_placement(place: Place, properties: Properties) -> Made:
    name = place.name()
    place.aws.client("ec2").create_placement_group(
        GroupName=name,
        Strategy=properties.get("Strategy", "cluster"),
        TagSpecifications=tagged("placement-group", place, properties),
    )
    return Made(physical_id=name, attributes={"GroupName": name})


def _delete_placement(place: Place, made: Made, properties: Properties) -> None:
    del properties
    unless_gone(
        ("InvalidPlacementGroup.Unknown",),
        place.aws.client("ec2").delete_placement_group,
        GroupName=made.physical_id,
    )


def _group_values(autoscaling: Any, properties: Properties) -> dict[str, Any]:
    values = {
        key: properties[key]
        for key in (
            "MinSize",
            "MaxSize",
            "DesiredCapacity",
            "LaunchTemplate",
            "MixedInstancesPolicy",
            "HealthCheckType",
            "HealthCheckGracePeriod",
            "NewInstancesProtectedFromScaleIn",
        )
        if key in properties
    }
    if "Cooldown" in properties:
        values["DefaultCooldown"] = properties["Cooldown"]
    values["VPCZoneIdentifier"] = ",".join(properties["VPCZoneIdentifier"])
    return shaped(autoscaling, "CreateAutoScalingGroup", values)


def _group_tags(place: Place, properties: Properties) -> list[dict[str, Any]]:
    """Return the group's tags; those of CloudFormation and of the stack go on to the instances too."""
    chosen = {
        tag["Key"]: str(tag.get("PropagateAtLaunch", "true")).lower() == "true" for tag in properties.get("Tags") or ()
    }
    return [{**tag, "PropagateAtLaunch": chosen.get(tag["Key"], True)} for tag in place.tags(properties.get("Tags"))]


def _create_group(place: Place, properties: Properties) -> Made:
    autoscaling = place.aws.client("autoscaling")
    name = properties.get("AutoScalingGroupName") or place.name()
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=name, Tags=_group_tags(place, properties), **_group_values(autoscaling, properties)
    )
    _collect_metrics(autoscaling, name, properties)
    return Made(physical_id=name, attributes=_group_attributes(autoscaling, name))


def _collect_metrics(autoscaling: Any, name: str, properties: Properties) -> None:
    """Have the group measured as the template says; without a word on it, not at all (moto takes an empty list so)."""
    metrics: set[str] = set()
    for each in properties.get("MetricsCollection") or ():
        metrics.update(each.get("Metrics") or GROUP_METRICS)
    if unknown := sorted(metrics - set(GROUP_METRICS)):
        raise ValidationError(f"the embedded cloud does not collect {', '.join(unknown)} of Auto Scaling groups")
    autoscaling.enable_metrics_collection(
        AutoScalingGroupName=name, Granularity="1Minute", Metrics=[each for each in GROUP_METRICS if each in metrics]
    )


def _group_attributes(autoscaling: Any, name: str) -> dict[str, Any]:
    groups = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    return {"AutoScalingGroupARN": groups[0]["AutoScalingGroupARN"]}


def _update_group(place: Place, made: Made, old: Properties, new: Properties) -> Made:
    """Change the group in place: its instances stay, unless its size or an UpdatePolicy says otherwise."""
    autoscaling = place.aws.client("autoscaling")
    name = made.physical_id
    values = _group_values(autoscaling, new)
    autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, **values)
    before = {tag["Key"] for tag in _group_tags(place, old)}
    after = _group_tags(place, new)
    whose = {"ResourceId": name, "ResourceType": "auto-scaling-group"}
    autoscaling.create_or_update_tags(Tags=[{**tag, **whose} for tag in after])
    gone = before - {tag["Key"] for tag in after}
    if gone:
        autoscaling.delete_tags(Tags=[{"Key": key, **whose} for key in sorted(gone)])
    _collect_metrics(autoscaling, name, new)
    return made


def _delete_group(place: Place, made: Made, properties: Properties) -> None:
    del properties
    autoscaling = place.aws.client("autoscaling")
    groups = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[made.physical_id])["AutoScalingGroups"]
    if groups:
        autoscaling.delete_auto_scaling_group(AutoScalingGroupName=made.physical_id, ForceDelete=True)


_DATA = "LaunchTemplateData"
_MIX = "MixedInstancesPolicy"
_ORDER = "nothing has a price here, and a type has room until `localcloud limit`: the order of the types decides"

KINDS = (
    Kind(
        type="AWS::EC2::LaunchTemplate",
        carried_out=frozenset(
            {
                "LaunchTemplateName",
                "TagSpecifications",
                f"{_DATA}.ImageId",
                f"{_DATA}.InstanceType",
                f"{_DATA}.KeyName",
                f"{_DATA}.UserData",
                f"{_DATA}.IamInstanceProfile",
                f"{_DATA}.SecurityGroupIds",
                f"{_DATA}.TagSpecifications",
                f"{_DATA}.MetadataOptions.HttpTokens",
                f"{_DATA}.DisableApiTermination",
                f"{_DATA}.Placement.GroupName",
                f"{_DATA}.NetworkInterfaces.DeviceIndex",
                f"{_DATA}.NetworkInterfaces.AssociatePublicIpAddress",
                f"{_DATA}.NetworkInterfaces.Groups",
            }
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
            f"{_DATA}.CapacityReservationSpecification": "nothing is scarce here, so nothing can be reserved",
            f"{_DATA}.NetworkInterfaces.InterfaceType": "its hosts have no EFA devices",
            f"{_DATA}.NetworkInterfaces.NetworkCardIndex": "its hosts have one network interface each",
        },
        replaced_by=frozenset({"LaunchTemplateName"}),
        attributes=frozenset({"LaunchTemplateId", "DefaultVersionNumber", "LatestVersionNumber"}),
        create=_create_template,
        update=_update_template,
        delete=_delete_template,
    ),
    Kind(
        type="AWS::EC2::PlacementGroup",
        carried_out=frozenset({"Strategy", "Tags"}),
        attributes=frozenset({"GroupName"}),
        create=_create_placement,
        delete=_delete_placement,
    ),
    Kind(
        type="AWS::AutoScaling::AutoScalingGroup",
        carried_out=frozenset(
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
                "MetricsCollection",
                "Tags",
            }
        ),
        inert={
            "HealthCheckType": "an instance is found unhealthy as soon as its host is gone",
            "HealthCheckGracePeriod": "an instance is found unhealthy as soon as its host is gone",
            "Cooldown": "step scaling, the only kind of policies here, has no cooldown",
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
)
