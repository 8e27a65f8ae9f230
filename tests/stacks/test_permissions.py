"""Every statement of every template, one by one: no action by wildcard, every resource only where there is no other.

Also the statements that are attached to a resource and say who may use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stacks.sessions import AGENT_ACTIONS
from tests.stacks.conftest import Synthesise
from tests.stacks.template import Template
from tests.stacks.test_clusters import CASES
from tests.stacks.test_template import BOUNDED, NO_SSH, OBSERVED, WATCHED

# Actions whose service knows no resource to name, and why that is no open door.
EVERYWHERE = {
    **dict.fromkeys(AGENT_ACTIONS, "Session Manager's channels are made by their opening, and have no names before"),
    "cloudwatch:PutMetricData": "CloudWatch knows no resource for it; a condition holds it to the cluster's namespace",
}
# Policies of AWS that are attached whole, and why.
MANAGED: dict[str, str] = {}

TEMPLATES: dict[str, dict[str, Any]] = {
    **{name: case.values for name, case in CASES.items()},
    "observed": OBSERVED,
    "bounded": BOUNDED,
    "all of both": {**OBSERVED, **BOUNDED},
    "no SSH port": NO_SSH,
    "watched": WATCHED,
}


@pytest.fixture(params=list(TEMPLATES.values()), ids=list(TEMPLATES))
def each_template(request: pytest.FixtureRequest, synthesise: Synthesise) -> Template:
    return synthesise(**request.param)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def documents(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every policy document, wherever in the template it stands."""
    if isinstance(value, dict):
        if "Statement" in value:
            yield value
        for below in value.values():
            yield from documents(below)
    elif isinstance(value, list):
        for below in value:
            yield from documents(below)


def allowing(template: Template) -> list[dict[str, Any]]:
    """Return every statement of the template that allows something to somebody."""
    found = [each for document in documents(template.resources) for each in listed(document["Statement"])]
    return [each for each in found if each["Effect"] == "Allow"]


def test_the_walk_sees_more_than_the_roles_own_policies(synthesise: Synthesise) -> None:
    template = synthesise(**OBSERVED, **BOUNDED)
    assert len(allowing(template)) > len(list(template.statements())) > 3


def test_no_statement_allows_an_action_by_wildcard_or_by_exclusion(each_template: Template) -> None:
    for statement in allowing(each_template):
        assert "NotAction" not in statement and "NotResource" not in statement and "NotPrincipal" not in statement
        assert not [action for action in listed(statement["Action"]) if "*" in action], statement


def test_every_resource_is_named_where_the_service_knows_one(each_template: Template) -> None:
    for statement in allowing(each_template):
        if "*" in listed(statement.get("Resource", [])):
            assert set(listed(statement["Action"])) <= EVERYWHERE.keys(), statement
            assert statement.get("Condition") or set(statement["Action"]) == set(AGENT_ACTIONS), statement


def test_nobody_but_services_and_this_account_is_allowed_anything_by_a_resource(each_template: Template) -> None:
    for statement in allowing(each_template):
        for principal in listed(statement.get("Principal", [])):
            if principal == "*" or principal == {"AWS": "*"}:
                assert statement.get("Condition"), statement


def test_policies_that_are_attached_whole_are_listed_with_a_reason(each_template: Template) -> None:
    for role in each_template.of("AWS::IAM::Role").values():
        assert {str(arn) for arn in role.get("ManagedPolicyArns", [])} <= MANAGED.keys()


def test_every_exception_is_one_that_a_template_needs(synthesise: Synthesise) -> None:
    statements = [each for values in TEMPLATES.values() for each in allowing(synthesise(**values))]
    open_ones = [each for each in statements if "*" in listed(each.get("Resource", []))]
    assert {action for each in open_ones for action in listed(each["Action"])} == set(EVERYWHERE)
