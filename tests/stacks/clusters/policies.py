"""Every allowing statement of a template, and the list of statements that must be this broad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stacks.node_roles import AGENT_ACTIONS
from tests.stacks.clusters.template import Template

# Actions that are allowed on every resource, and why this is safe.
EVERYWHERE: Final = {
    "cloudwatch:PutMetricData": "CloudWatch knows no resource for it; a condition holds it to the cluster's namespace",
    **dict.fromkeys(
        ("autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"),
        "Auto Scaling knows no resource for them, and they change nothing",
    ),
    **dict.fromkeys(AGENT_ACTIONS, "Session Manager's channels are made by their opening, and have no names before"),
}
# Actions among them that need a condition to restrict them to the cluster.
HELD: Final = frozenset({"cloudwatch:PutMetricData"})
# In a key's own policy: a KMS key needs a policy that includes the account, or it cannot be managed. IAM then decides.
KEY_OWNER: Final = "kms:*"


def listed(value: Any) -> list[Any]:
    """Return a value as a list; CloudFormation may omit the list around a single value."""
    return value if isinstance(value, list) else [value]


def documents(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every policy document in a part of a template, at any depth."""
    if isinstance(value, dict):
        if "Statement" in value:
            yield value
        for below in value.values():
            yield from documents(below)
    elif isinstance(value, list):
        for below in value:
            yield from documents(below)


def allowing(resources: Any) -> list[dict[str, Any]]:
    """Return every statement in a part of a template that allows something."""
    found = [each for document in documents(resources) for each in listed(document["Statement"])]
    return [each for each in found if each["Effect"] == "Allow"]


def excess(template: Template) -> Iterator[str]:
    """Yield the permissions of a template beyond those listed here."""
    for id, item in template.resources.items():
        attached = item["Type"] not in ("AWS::IAM::Policy", "AWS::IAM::Role")
        own_key = item["Type"] == "AWS::KMS::Key"
        for statement in allowing(item):
            yield from (f"{id}: {text}" for text in _excess(statement, attached=attached, own_key=own_key))
        if item["Type"] == "AWS::IAM::Role" and item["Properties"].get("ManagedPolicyArns"):
            yield f"{id}: a policy is attached whole"


def _excess(statement: dict[str, Any], *, attached: bool, own_key: bool) -> Iterator[str]:
    """Yield the excess permissions of a statement; an `attached` statement says who may use its resource."""
    for key in ("NotAction", "NotResource", "NotPrincipal"):
        if key in statement:
            yield f"{key} allows all but something"
    actions = listed(statement.get("Action", []))
    owner = own_key and actions == [KEY_OWNER] and ":root" in str(statement["Principal"])
    if not owner:
        yield from (f"action {action}" for action in actions if "*" in action)
    for principal in listed(statement.get("Principal", [])):
        if (principal == "*" or principal == {"AWS": "*"}) and not statement.get("Condition"):
            yield f"anybody may {', '.join(actions)}"
    if attached or "*" not in listed(statement.get("Resource", [])):
        return
    yield from (f"{action} on every resource" for action in actions if action not in EVERYWHERE)
    if set(actions) & HELD and not statement.get("Condition"):
        yield f"{', '.join(actions)} on every resource, and no condition"
