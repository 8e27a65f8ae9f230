"""The cloud rejects what AWS rejects, and accepts the nearest valid request."""

from __future__ import annotations

import itertools

import pytest
from botocore.exceptions import ClientError

from api.templates import Stacks
from refusals import call_cases, stack_cases
from refusals.templates import Calls, Case, Client, Template

_numbers = itertools.count(1)


@pytest.mark.parametrize("case", call_cases.CASES, ids=str)
def test_call_is_rejected_with_the_code_of_aws(case: Case[Calls], client: Client) -> None:
    with pytest.raises(ClientError) as rejection:
        case.violation(client)
    assert case.error in str(rejection.value)
    assert "InternalFailure" not in str(rejection.value)
    case.valid(client)


@pytest.mark.parametrize("case", stack_cases.CASES, ids=str)
def test_stack_is_rejected_and_rolled_back(case: Case[Template], stacks: Stacks) -> None:
    status, error = create(stacks, case.violation)
    assert case.error in error
    assert "InternalFailure" not in error
    assert status in ("", "ROLLBACK_COMPLETE")
    assert create(stacks, case.valid) == ("CREATE_COMPLETE", "")


def create(stacks: Stacks, template: Template) -> tuple[str, str]:
    """Create and delete a stack; return its status ("" if the call was rejected) and the errors, one per line."""
    name = f"case{next(_numbers)}"
    try:
        status = stacks.create_named(name, template, Capabilities=["CAPABILITY_NAMED_IAM"])
    except ClientError as error:
        return "", str(error)
    failed = [reason for reason in stacks.reasons(name) if "_FAILED: " in reason]
    stacks.delete(name)
    return status, "\n".join(failed)
