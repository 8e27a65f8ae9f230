"""Step scaling: the chosen step, the new size, and rejected policies."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from api.templates import Client, Stacks, nodes
from localcloud.api.cloudwatch.scaling import chosen_step, new_capacity

STEPS = [
    {"MetricIntervalUpperBound": -10, "ScalingAdjustment": -2},
    {"MetricIntervalLowerBound": -10, "MetricIntervalUpperBound": 0, "ScalingAdjustment": -1},
    {"MetricIntervalLowerBound": 0, "MetricIntervalUpperBound": 10, "ScalingAdjustment": 1},
    {"MetricIntervalLowerBound": 10, "ScalingAdjustment": 2},
]


@pytest.mark.parametrize(("beyond", "step"), [(-11, -2), (-10, -2), (-1, -1), (0, -1), (1, 1), (10, 2), (99, 2)])
def test_step_that_contains_value_is_chosen(beyond: float, step: int) -> None:
    assert chosen_step(STEPS, beyond) == step


def test_value_outside_of_all_steps_changes_nothing() -> None:
    assert chosen_step([STEPS[3]], 5) is None


@given(st.sampled_from(["ExactCapacity", "ChangeInCapacity"]), st.integers(-99, 99), st.integers(2, 8))
def test_size_stays_within_the_groups_bounds(kind: str, adjustment: int, desired: int) -> None:
    assert 2 <= new_capacity(kind, adjustment, desired, 2, 8) <= 8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"PolicyType": "SimpleScaling", "ScalingAdjustment": 1}, "policy type SimpleScaling, only StepScaling"),
        ({"AdjustmentType": "PercentChangeInCapacity"}, "PercentChangeInCapacity, only ExactCapacity"),
        ({"AutoScalingGroupName": "nobody"}, "Group not found"),
        ({"StepAdjustments": []}, "At least one StepAdjustment"),
    ],
)
def test_other_policies_are_rejected_with_their_names(
    client: Client, stacks: Stacks, values: dict[str, Any], message: str
) -> None:
    group = stacks.physical(stacks.create(nodes(0)), "Nodes")
    good: dict[str, Any] = {
        "AutoScalingGroupName": group,
        "PolicyName": "refused",
        "PolicyType": "StepScaling",
        "AdjustmentType": "ExactCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 0}],
    }
    with pytest.raises(ClientError, match=message):
        client("autoscaling").put_scaling_policy(**(good | values))


def test_policy_is_executed_by_name_and_by_arn_with_given_value(client: Client, stacks: Stacks) -> None:
    autoscaling = client("autoscaling")
    group = stacks.physical(stacks.create(nodes(2)), "Nodes")
    arn = autoscaling.put_scaling_policy(
        AutoScalingGroupName=group, PolicyName="none", PolicyType="StepScaling", AdjustmentType="ExactCapacity",
        StepAdjustments=[{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 0}],
    )["PolicyARN"]  # fmt: skip

    def desired() -> int:
        (found,) = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"]
        return int(found["DesiredCapacity"])

    for wrong, message in (
        ({"PolicyName": arn}, "Step scaling needs MetricValue and BreachThreshold"),
        ({"PolicyName": arn, "MetricValue": 1.0, "BreachThreshold": 2.0}, "There is no step adjustment"),
        ({"PolicyName": "other", "MetricValue": 1.0, "BreachThreshold": 0.0}, "Unable to find policy other"),
    ):
        with pytest.raises(ClientError, match=message):
            autoscaling.execute_policy(**wrong)
    assert desired() == 2
    autoscaling.execute_policy(PolicyName=arn, MetricValue=1.0, BreachThreshold=0.0)
    assert desired() == 0
