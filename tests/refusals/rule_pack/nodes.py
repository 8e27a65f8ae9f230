"""Entries of launch templates and Auto Scaling groups that cdk-preflight refuses."""

from __future__ import annotations

from typing import Any, Final

from tests.refusals.case import Case, Template
from tests.refusals.templates import group, launch_template, mixed, network, ref, resource


def _nodes(data: dict[str, Any] | None = None, **properties: Any) -> Template:
    """Return a network with a group of a launch template, with data of the one and properties of the other."""
    return network(Launch=launch_template(**(data or {})), Workers=group(**properties))


def _mixed(types: str, **distribution: Any) -> Template:
    """Return a group of instance types, some with a weight: `c5.large:2`."""
    pairs = (text.split(":") for text in types.split())
    overrides = [
        {"InstanceType": name, **({"WeightedCapacity": weight[0]} if weight else {})} for name, *weight in pairs
    ]
    return _nodes(MixedInstancesPolicy=mixed(overrides, **distribution))


def _hook(**properties: Any) -> Template:
    given = {"AutoScalingGroupName": ref("Workers"), "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING"}
    hook = resource("AutoScaling::LifecycleHook", **given, **properties)
    return network(Launch=launch_template(), Workers=group(), Hook=hook)


def _policy(**properties: Any) -> Template:
    policy = resource("AutoScaling::ScalingPolicy", AutoScalingGroupName=ref("Workers"), **properties)
    return network(Launch=launch_template(), Workers=group(), Policy=policy)


def _steps(*bounds: tuple[int | None, int | None]) -> Template:
    """Return a step policy with steps between bounds; None is infinity."""
    steps = []
    for low, high in bounds:
        given = {"MetricIntervalLowerBound": low, "MetricIntervalUpperBound": high, "ScalingAdjustment": 1}
        steps.append({key: value for key, value in given.items() if value is not None})
    return _policy(PolicyType="StepScaling", AdjustmentType="ChangeInCapacity", StepAdjustments=steps)


def _simple(adjustment: str, **properties: Any) -> Template:
    return _policy(PolicyType="SimpleScaling", AdjustmentType=adjustment, ScalingAdjustment=50, **properties)


def _metrics(*names: str) -> Template:
    return _nodes(MetricsCollection=[{"Granularity": "1Minute", "Metrics": list(names)}])


def _notices(kind: str) -> Template:
    topic = {"TopicARN": "arn:aws:sns:us-east-1:123456789012:words", "NotificationTypes": [kind]}
    return _nodes(NotificationConfigurations=[topic])


def _tags(count: int) -> Template:
    return _nodes(Tags=[{"Key": f"k{n}", "Value": "v", "PropagateAtLaunch": True} for n in range(count)])


def _zones(*zones: str) -> Template:
    """Return a group that names zones beside subnets of us-east-1a and us-east-1b."""
    found = _nodes(AvailabilityZones=list(zones))
    for name, zone in (("A", "us-east-1a"), ("B", "us-east-1b")):
        found["Resources"][name]["Properties"]["AvailabilityZone"] = zone
    return found


def _pool(market: str) -> Template:
    """Return a warm pool of a group whose template asks for instances of a market."""
    bought = {"InstanceMarketOptions": {"MarketType": market}} if market else {}
    pool = resource("AutoScaling::WarmPool", AutoScalingGroupName=ref("Workers"))
    return network(Launch=launch_template(**bought), Workers=group(), Pool=pool)


def _data(size: int) -> Template:
    return _nodes({"UserData": {"Fn::Base64": "#" * size}})


_ROLE: Final = "arn:aws:iam::123456789012:role/tell"
_QUEUE: Final = "arn:aws:sqs:us-east-1:123456789012:words"
_SPOT: Final = {"SpotInstancePools": 2}
_FAILED: Final = "EC2_INSTANCE_LAUNCH_ERROR"

CASES: Final[tuple[Case[Template], ...]] = (
    Case("EC2-29", _data(16_400), "pf-ec2-userdata-size", _data(16_384)),
    Case(
        "AS-05",
        _mixed("c5.large c5.xlarge c5.large"),
        "pf-asg-overrides-instancetype-duplicate-rejected",
        _mixed("c5.large c5.xlarge"),
    ),
    Case(
        "AS-07",
        _mixed("c5.large:1 c5.xlarge"),
        "pf-asg-overrides-weighted-capacity-uniform",
        _mixed("c5.large:1 c5.xlarge:2"),
    ),
    Case(
        "AS-08",
        _mixed("c5.large", SpotAllocationStrategy="capacity-optimized", **_SPOT),
        "pf-asg-spot-instance-pools-requires-lowest-price",
        _mixed("c5.large", SpotAllocationStrategy="lowest-price", **_SPOT),
    ),
    Case(
        "AS-09",
        _mixed("c5.large", OnDemandPercentageAboveBaseCapacity=150),
        "pf-asg-ondemand-percentage-max",
        _mixed("c5.large", OnDemandPercentageAboveBaseCapacity=100),
    ),
    Case("AS-12", _pool("spot"), "pf-asg-wp-spot-incompatible", _pool("")),
    Case("AS-14", _metrics("GroupHealthyInstances"), "pf-asg-metrics-name-enum", _metrics("GroupInServiceInstances")),
    Case(
        "AS-15",
        _notices("autoscaling:EC2_INSTANCE_LAUNCH_FAILED"),
        "pf-asg-notification-type-enum",
        _notices(f"autoscaling:{_FAILED}"),
    ),
    Case(
        "AS-19",
        _hook(RoleARN=_ROLE),
        "pf-asg-lh-target-role-mutual-required",
        _hook(RoleARN=_ROLE, NotificationTargetARN=_QUEUE),
    ),
    Case("AS-21", _steps((0, 20), (10, None)), "pf-asg-step-interval-overlap", _steps((0, 10), (10, None))),
    Case("AS-22", _steps((0, 10)), "pf-asg-step-positive-upper-needs-null-upper", _steps((0, None))),
    Case(
        "AS-28",
        _simple("ExactCapacity", MinAdjustmentMagnitude=2),
        "pf-asg-minadjustmagnitude-requires-percent",
        _simple("PercentChangeInCapacity", MinAdjustmentMagnitude=2),
    ),
    Case("AS-30", _tags(51), "pf-asg-tags-max-50", _tags(50)),
    Case("AS-31", _zones("us-east-1f"), "pf-asg-vpczone-az-mismatch", _zones("us-east-1a", "us-east-1b")),
)
