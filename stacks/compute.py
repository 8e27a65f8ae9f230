"""The nodes: a launch template and an Auto Scaling group for the master and for the workers."""

from __future__ import annotations

import dataclasses
from typing import Final, cast

import jsii
from aws_cdk import Acknowledgment, CfnResource, Duration, Tags, Validations
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from stacks.config import IMAGE_PARAMETER, ROLE_TAG, ClusterConfig, ConfigError
from stacks.config_keys.compute import BASE_IOPS, BASE_MIB_S
from stacks.images import Image
from stacks.instance_types import find
from stacks.purchasing import mixed_policy, reserve

# cfn-lint, which the CDK runs at synth, knows gp3's limits only up to here.
_LINTED_IOPS: Final = 16000
_LINTED_MIB_S: Final = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Volume:
    """A root volume: gp3, encrypted, deleted with its instance."""

    gib: int
    iops: int
    mib_s: int
    key: kms.IKey | None
    """The key that encrypts the volume; None: AWS's own key."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeGroupProps:
    role: str
    """Value of ROLE_TAG: `master` or `worker`."""
    name: str
    """Value of the instances' Name tag."""
    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection
    security_group: ec2.ISecurityGroup
    instance_role: iam.IRole
    instance_type: str
    image: Image
    key_pair: ec2.IKeyPair
    volume: Volume
    user_data: str
    logical_id: str
    """Logical ID of the group, which receives the signals of user data."""
    ready_timeout: Duration
    """How long CloudFormation waits for a signal from each desired node."""
    minimum: int = 1
    desired: int = 1
    maximum: int = 1
    least: int = 0
    """Minimum number of nodes that must signal success; 0: all of them."""
    replaced_at_once: int = 0
    """Number of nodes to replace at a time when the template changes; 0: running nodes are kept."""
    notice: Duration | None = None
    """Time for an instance to save its work when the group terminates it."""
    public_address: bool = False
    clustered: bool = False
    """Place all nodes of the group in one cluster placement group."""
    purchase: ClusterConfig | None = None
    """Configuration with the purchase options; None: on-demand instances of the launch template's type."""
    efa: bool = False
    """Attach all EFA devices of the instance type to each node."""


class NodeGroup(Construct):
    """The nodes of one role: launch template, Auto Scaling group, tags."""

    def __init__(self, scope: Construct, id: str, props: NodeGroupProps) -> None:
        super().__init__(scope, id)
        template = self._create_template(props)
        if props.clustered:
            self._place_together(template, props)
        if props.efa:
            _attach_efa(template, props)
        if props.purchase:
            reserve(template, props.purchase)
        self.group = self._create_group(template, props)
        if props.notice is not None:
            # CONTINUE: the instance is terminated after this time in any case. Nobody needs to confirm it.
            self.group.add_lifecycle_hook(
                "Notice",
                lifecycle_transition=autoscaling.LifecycleTransition.INSTANCE_TERMINATING,
                heartbeat_timeout=props.notice,
                default_result=autoscaling.DefaultResult.CONTINUE,
            )
        for tagged in (template, self.group):
            Tags.of(tagged).add(ROLE_TAG, props.role)
            Tags.of(tagged).add("Name", props.name)

    def wait_for(self, *dependencies: IDependable) -> None:
        """Launch nodes only after these resources exist, and delete these resources only after the last node."""
        self.group.node.add_dependency(*dependencies)

    def _create_template(self, props: NodeGroupProps) -> ec2.LaunchTemplate:
        template = ec2.LaunchTemplate(
            self,
            "Template",
            instance_type=ec2.InstanceType(props.instance_type),
            machine_image=machine_image(props.image),
            key_pair=props.key_pair,
            role=props.instance_role,
            security_group=props.security_group,
            associate_public_ip_address=props.public_address,
            http_tokens=ec2.LaunchTemplateHttpTokens.REQUIRED,
            http_endpoint=True,
            http_put_response_hop_limit=1,
            user_data=ec2.UserData.custom(props.user_data),
            block_devices=[_root_volume(props.image.root_device, props.volume)],
        )
        if props.image.id and props.image.parameter:
            cast(CfnResource, template.node.default_child).add_metadata(IMAGE_PARAMETER, props.image.parameter)
        if props.volume.iops > _LINTED_IOPS or props.volume.mib_s > _LINTED_MIB_S:
            Validations.of(template).acknowledge(
                Acknowledgment(
                    id="CloudFormation-Validate::E3671",
                    reason="EC2 accepts up to 80,000 IOPS and 2,000 MiB/s for gp3. The rule has older limits.",
                )
            )
        return template

    def _place_together(self, template: ec2.LaunchTemplate, props: NodeGroupProps) -> None:
        """Create a placement group and set it in the launch template. The construct has no property for it."""
        group = ec2.CfnPlacementGroup(self, "Placement", strategy="cluster")
        Tags.of(group).add("Name", props.name)
        resource = cast(ec2.CfnLaunchTemplate, template.node.default_child)
        resource.add_property_override("LaunchTemplateData.Placement.GroupName", group.ref)

    def _create_group(self, template: ec2.LaunchTemplate, props: NodeGroupProps) -> autoscaling.AutoScalingGroup:
        ready = None  # without nodes there is nothing to wait for
        if props.desired:
            ready = autoscaling.Signals.wait_for_count(
                props.desired, timeout=props.ready_timeout, min_success_percentage=_sufficient(props)
            )
        mixed = mixed_policy(template, props.purchase) if props.purchase else None
        group = autoscaling.AutoScalingGroup(
            self,
            "Group",
            vpc=props.vpc,
            vpc_subnets=props.subnets,
            launch_template=None if mixed else template,
            mixed_instances_policy=mixed,
            min_capacity=props.minimum,
            desired_capacity=props.desired,
            max_capacity=props.maximum,
            signals=ready,
            update_policy=_rolling(props) if props.replaced_at_once else None,
        )
        resource = cast(autoscaling.CfnAutoScalingGroup, group.node.default_child)
        resource.override_logical_id(props.logical_id)
        if props.purchase and props.purchase.capacity_rebalance:
            resource.capacity_rebalance = True  # The construct has no property for it.
        Validations.of(group).acknowledge(
            Acknowledgment(
                id="@aws-cdk/aws-autoscaling:desiredCapacitySet",
                reason="A deployment sets the number of nodes in cdk.json on purpose.",
            ),
            Acknowledgment(
                id="AwsSolutions-AS3",
                reason="The registry on the shared file system records which nodes join and leave.",
            ),
        )
        if mixed:
            Validations.of(group).acknowledge(
                Acknowledgment(
                    id="AwsSolutions-EC26",
                    reason="The rule fails on a group of several types. The launch template's volumes are encrypted.",
                )
            )
        return group


@jsii.implements(ec2.IMachineImage)
class _ImageById:
    """An image given by its ID. The CDK's own class needs the ID's region, which is unknown to this stack."""

    def __init__(self, id: str) -> None:
        self.id = id

    def get_image(self, scope: Construct) -> ec2.MachineImageConfig:
        """Return the image's configuration. The CDK calls this method."""
        del scope
        return ec2.MachineImageConfig(
            image_id=self.id, os_type=ec2.OperatingSystemType.LINUX, user_data=ec2.UserData.for_linux()
        )


def machine_image(image: Image) -> ec2.IMachineImage:
    """Return the image in the form that the CDK's constructs need."""
    return _ImageById(image.id) if image.id else ec2.MachineImage.from_ssm_parameter(image.parameter)


def _root_volume(device: str, volume: Volume) -> ec2.BlockDevice:
    """Describe a root volume. gp3's defaults are omitted, so that the template shows only the differences."""
    return ec2.BlockDevice(
        device_name=device,
        volume=ec2.BlockDeviceVolume.ebs(
            volume.gib,
            encrypted=True,
            kms_key=volume.key,
            volume_type=ec2.EbsDeviceVolumeType.GP3,
            iops=volume.iops if volume.iops != BASE_IOPS else None,
            throughput=volume.mib_s if volume.mib_s != BASE_MIB_S else None,
            delete_on_termination=True,
        ),
    )


def _sufficient(props: NodeGroupProps) -> int | None:
    """Return the percentage of nodes that must signal success; None: all of them."""
    return least_percent(props.least, props.desired) if props.least else None


def least_percent(least: int, wanted: int) -> int:
    """Return the lowest whole percentage of `wanted` that requires at least `least` nodes.

    CloudFormation takes a percentage and rounds the number of nodes up: 88% of 16 nodes are 15. With more than a
    hundred nodes, the percentage may require a few more than `least`, but never fewer.
    """
    return 100 * (least - 1) // wanted + 1


def _rolling(props: NodeGroupProps) -> autoscaling.UpdatePolicy:
    """Return a policy that replaces nodes in batches. The share `_sufficient` of the new nodes must report success.

    Processes of the group that could interfere, such as health checks, are suspended meanwhile.
    """
    return autoscaling.UpdatePolicy.rolling_update(
        max_batch_size=props.replaced_at_once,
        min_instances_in_service=0,
        min_success_percentage=_sufficient(props),
        pause_time=props.ready_timeout,
        wait_on_resource_signals=True,
        suspend_processes=[
            autoscaling.ScalingProcess.HEALTH_CHECK,
            autoscaling.ScalingProcess.REPLACE_UNHEALTHY,
            autoscaling.ScalingProcess.AZ_REBALANCE,
            autoscaling.ScalingProcess.ALARM_NOTIFICATION,
            autoscaling.ScalingProcess.SCHEDULED_ACTIONS,
        ],
    )


def _attach_efa(template: ec2.LaunchTemplate, props: NodeGroupProps) -> None:
    """Give the template network interfaces with all EFA devices of the type. The construct has no property for EFA.

    Raises ConfigError if the type is unknown or has no EFA devices.
    """
    groups = [props.security_group.security_group_id]
    interfaces = [{**interface, "Groups": groups} for interface in efa_interfaces(props.instance_type)]
    resource = cast(ec2.CfnLaunchTemplate, template.node.default_child)
    resource.add_property_override("LaunchTemplateData.NetworkInterfaces", interfaces)


def efa_interfaces(instance_type: str) -> list[dict[str, object]]:
    """Return the network interfaces of an instance with all its EFA devices, in the format of a launch template.

    The EC2 user guide recommends this layout ("Maximize network bandwidth on Amazon EC2 instances with multiple network
    cards"). An ordinary interface carries IP. Each EFA device is a separate `efa-only` interface without an IP address,
    so an instance takes one address of its subnet and has one route. The EFA device is the second one on the first
    card, and the first one on all other cards. No interface requests a public address, because EC2 rejects that with
    two or more interfaces, and the private subnets assign none.

    Raises ConfigError if the type is unknown or has no EFA devices.
    """
    kind = find(instance_type)
    if kind is None or not kind.efa_interfaces:
        raise ConfigError(
            "worker_instance_type",
            instance_type,
            "has no EFA devices in the table of instance types; use another type, or set efa = false",
        )
    cards = range(kind.efa_first_card, kind.efa_first_card + kind.efa_interfaces)
    primary = _interface(card=0, device=0, kind="interface")
    return [primary, *(_interface(card=card, device=0 if card else 1, kind="efa-only") for card in cards)]


def _interface(*, card: int, device: int, kind: str) -> dict[str, object]:
    return {
        "NetworkCardIndex": card,
        "DeviceIndex": device,
        "InterfaceType": kind,
        "DeleteOnTermination": True,
    }
