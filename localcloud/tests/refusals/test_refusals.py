"""The cloud rejects what AWS rejects, and accepts the nearest valid request."""

from __future__ import annotations

import itertools
import json

import pytest
from botocore.exceptions import ClientError

from refusals import call_cases, stack_cases
from refusals.templates import Calls, Case, Client, Template
from waiting import eventually

_numbers = itertools.count(1)


@pytest.mark.parametrize("case", call_cases.CASES, ids=str)
def test_a_call_is_rejected_with_the_code_of_aws(case: Case[Calls], client: Client) -> None:
    with pytest.raises(ClientError) as rejection:
        case.violation(client)
    assert case.error in str(rejection.value)
    assert "InternalFailure" not in str(rejection.value)
    case.valid(client)


@pytest.mark.parametrize("case", stack_cases.CASES, ids=str)
def test_a_stack_is_rejected_and_rolled_back(case: Case[Template], client: Client) -> None:
    status, error = create(client, case.violation)
    assert case.error in error
    assert "InternalFailure" not in error
    assert status in ("", "ROLLBACK_COMPLETE")
    assert create(client, case.valid) == ("CREATE_COMPLETE", "")


def create(client: Client, template: Template) -> tuple[str, str]:
    """Create and delete a stack; return its status ("" if the call was rejected) and the errors, one per line."""
    formation, name = client("cloudformation"), f"case{next(_numbers)}"
    try:
        formation.create_stack(StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_NAMED_IAM"])
    except ClientError as error:
        return "", str(error)

    def settled() -> str | None:
        status: str = formation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        return None if status.endswith("_IN_PROGRESS") else status

    status = eventually(settled, 60, f"the end of the creation of {name}")
    events = formation.describe_stack_events(StackName=name)["StackEvents"]
    failed = [event for event in reversed(events) if event["ResourceStatus"].endswith("_FAILED")]
    formation.delete_stack(StackName=name)
    return status, "\n".join(event.get("ResourceStatusReason", "") for event in failed)
