"""Resource types of EC2 instances: launch templates and placement groups."""

from __future__ import annotations

from localcloud.api.cloudformation.types.handlers import delete_with, shaped, tagged
from localcloud.api.cloudformation.types.resource_type import (
    DESCRIPTION,
    NOTHING_TO_ENCRYPT,
    Context,
    Physical,
    Properties,
    ResourceType,
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
    attributes = {"LaunchTemplateId": template_id, "DefaultVersionNumber": default, "LatestVersionNumber": latest}
    return Physical(id=template_id, attributes=attributes)


def _update_template(context: Context, resource: Physical, old: Properties, new: Properties) -> Physical:
    """Add a version where the data changed; the versions before stay, and with them the instances made from them."""
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


RESOURCE_TYPES = (
    ResourceType(
        name="AWS::EC2::LaunchTemplate",
        rules={
            "LaunchTemplateData.ImageId": "exists, when a group is made",
            "LaunchTemplateData.KeyName": "exists, when a group is made",
            "LaunchTemplateData.IamInstanceProfile": "Arn or Name, not both",
            "LaunchTemplateData.SecurityGroupIds": "not beside NetworkInterfaces",
            "LaunchTemplateData.NetworkInterfaces.AssociatePublicIpAddress": "at DeviceIndex 0 alone",
            "LaunchTemplateData.DisableApiTermination": "not for spot instances, when one is launched",
            "LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit": "1 to 64",
            "LaunchTemplateData.BlockDeviceMappings": (
                "KmsKeyId with Encrypted; gp3: 500 IOPS for each GiB, 0.25 MiB/s for each of the IOPS"
            ),
            "LaunchTemplateData.TagSpecifications": "no keys that begin with aws:",
            "TagSpecifications": "no keys that begin with aws:",
        },
        named_by="LaunchTemplateName",
        honoured=frozenset(
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
        delete=delete_with(
            "ec2",
            "delete_launch_template",
            "LaunchTemplateId",
            gone=("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException"),
        ),
    ),
    ResourceType(
        name="AWS::EC2::PlacementGroup",
        honoured=frozenset({"Strategy", "Tags"}),
        attributes=frozenset({"GroupName"}),
        create=_create_placement,
        delete=delete_with("ec2", "delete_placement_group", "GroupName", gone=("InvalidPlacementGroup.Unknown",)),
    ),
)
