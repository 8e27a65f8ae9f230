"""The creation of a stack, and what was refused in it."""

from __future__ import annotations

import dataclasses
import itertools
import json

from botocore.exceptions import ClientError

from tests.refusals.case import Client, Template
from tests.waiting import eventually

_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True)
class Creation:
    """How the creation of a stack ended."""

    status: str
    """The stack's status; empty where the call itself was refused."""
    refused: str
    """Error of the call, or the reasons of what failed, a line each; empty where nothing was refused."""


def create(client: Client, template: Template) -> Creation:
    """Create a stack, and delete it when it is there or has been rolled back."""
    formation, name = client("cloudformation"), f"case{next(_numbers)}"
    try:
        formation.create_stack(StackName=name, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_NAMED_IAM"])
    except ClientError as error:
        return Creation(status="", refused=str(error))

    def settled() -> str | None:
        status: str = formation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"]
        return None if status.endswith("_IN_PROGRESS") else status

    status = eventually(settled, 60, f"an end of the creation of {name}")
    events = formation.describe_stack_events(StackName=name)["StackEvents"]
    failed = [event for event in reversed(events) if event["ResourceStatus"].endswith("_FAILED")]
    formation.delete_stack(StackName=name)
    return Creation(status=status, refused="\n".join(event.get("ResourceStatusReason", "") for event in failed))
