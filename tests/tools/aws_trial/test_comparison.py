"""Facts about the comparison: every answer that differs is found, and times are no difference."""

from __future__ import annotations

import dataclasses

import pytest

from tests.tools.aws_trial.observations import DESCRIBED, GROUP, NO_STACK, OBSERVED, UP
from tools.aws_trial.comparison import Fields, compare, compare_fields, unshared_operations
from tools.aws_trial.observation import Observation

FAILED = dataclasses.replace(GROUP, states=("CREATE_IN_PROGRESS", "CREATE_FAILED"), reasons=("no capacity",))


def test_equal_trials_differ_in_nothing_whatever_their_times() -> None:
    slower = dataclasses.replace(
        OBSERVED,
        date="another",
        where="embedded cloud",
        commands=(dataclasses.replace(UP, seconds=1.0),),
        resources=(dataclasses.replace(GROUP, seconds=1.0),),
        calls=(dataclasses.replace(DESCRIBED, count=9, seconds=1.0, retries=3),),
    )
    assert compare(slower, OBSERVED) == ()
    assert compare_fields(slower, OBSERVED) == ()
    assert unshared_operations(slower, OBSERVED) == ()


@pytest.mark.parametrize(
    ("changed", "topic", "expected", "observed"),
    [
        (dataclasses.replace(OBSERVED, commands=()), "commands", "exit code 0", "-"),
        (
            dataclasses.replace(OBSERVED, commands=(dataclasses.replace(UP, exit_code=1),)),
            "commands",
            "exit code 0",
            "exit code 1",
        ),
        (
            dataclasses.replace(OBSERVED, resources=(FAILED,)),
            "resources",
            "CREATE_IN_PROGRESS > CREATE_COMPLETE",
            "CREATE_IN_PROGRESS > CREATE_FAILED > no capacity",
        ),
        (
            dataclasses.replace(OBSERVED, calls=(dataclasses.replace(DESCRIBED, errors=("Throttling",)),)),
            "calls",
            "-",
            "Throttling",
        ),
        (
            dataclasses.replace(OBSERVED, refusals=(dataclasses.replace(NO_STACK, code="", message=""),)),
            "refusals",
            "ValidationError: no stack",
            "not refused: ",
        ),
        (dataclasses.replace(OBSERVED, facts={"doctor before: stack": "warn"}), "facts", "ok", "warn"),
    ],
)
def test_each_answer_that_differs_is_found(changed: Observation, topic: str, expected: str, observed: str) -> None:
    (found,) = compare(changed, OBSERVED)
    assert (found.topic, found.expected, found.observed) == (topic, expected, observed)


def test_an_answer_that_a_task_may_not_have_waited_for_is_no_difference() -> None:
    asked = dataclasses.replace(DESCRIBED, operation="pricing:GetProducts", errors=("InternalFailure",))
    assert compare(dataclasses.replace(OBSERVED, calls=(DESCRIBED, asked)), OBSERVED) == ()


def test_fields_that_only_one_of_the_clouds_gave_are_told_apart() -> None:
    other = dataclasses.replace(OBSERVED, calls=(dataclasses.replace(DESCRIBED, fields=("B[].C", "D")),))
    assert compare_fields(other, OBSERVED) == (Fields(operation="ec2:DescribeInstances", missing=("A",), more=("D",)),)


def test_an_operation_that_one_trial_called_is_named_and_no_difference() -> None:
    other = dataclasses.replace(OBSERVED, calls=())
    assert unshared_operations(other, OBSERVED) == ("ec2:DescribeInstances",)
    assert compare(other, OBSERVED) == ()
    assert compare_fields(other, OBSERVED) == ()
