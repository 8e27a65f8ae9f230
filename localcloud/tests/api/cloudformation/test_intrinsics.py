"""Intrinsic functions work like CloudFormation's, and resources come after their dependencies."""

from __future__ import annotations

from typing import Any

import pytest

from api.templates import nodes
from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.intrinsics import NO_VALUE, Scope, dependencies, order, references
from refusals.templates import ref


def _scope(template: dict[str, Any] | None = None) -> Scope:
    made = {"Vpc": "vpc-1"}
    attributes = {("Vpc", "Cidr"): "10.0.0.0/16", ("Template", "Version"): 3, ("Db", "Endpoint.Port"): "5432"}

    def reference(name: str) -> str:
        if name not in made:
            raise ValidationError(f"unresolved {name}")
        return made[name]

    return Scope(
        template or {},
        parameters={"Size": "4", "Zones": ["a", "b"]},
        pseudo={"AWS::Region": "us-east-1", "AWS::StackName": "one"},
        zones=["us-east-1a", "us-east-1b"],
        exports={"shared": "value"},
        reference=reference,
        attribute=lambda name, key: attributes[name, key],
    )


@pytest.mark.parametrize(
    ("value", "result"),
    [
        (ref("Vpc"), "vpc-1"),
        (ref("Size"), "4"),
        (ref("Zones"), ["a", "b"]),
        ({"Ref": "AWS::Region"}, "us-east-1"),
        ({"Fn::GetAtt": ["Vpc", "Cidr"]}, "10.0.0.0/16"),
        ({"Fn::GetAtt": "Vpc.Cidr"}, "10.0.0.0/16"),
        ({"Fn::GetAtt": "Db.Endpoint.Port"}, "5432"),
        ({"Fn::Sub": "at ${Db.Endpoint.Port}"}, "at 5432"),
        ({"Fn::Join": ["-", ["a", ref("Size"), 1]]}, "a-4-1"),
        ({"Fn::Join": [",", ref("Zones")]}, "a,b"),
        ({"Fn::Split": ["|", "a|b"]}, ["a", "b"]),
        ({"Fn::Select": ["1", {"Fn::GetAZs": ""}]}, "us-east-1b"),
        ({"Fn::Select": [0, {"Fn::GetAZs": ""}]}, "us-east-1a"),
        ({"Fn::Sub": "${AWS::StackName}: ${Vpc.Cidr} ${!Kept} ${Vpc}"}, "one: 10.0.0.0/16 ${Kept} vpc-1"),
        ({"Fn::Sub": ["${Own}${Template.Version}", {"Own": ref("Size")}]}, "43"),
        ({"Fn::Base64": {"Fn::Join": ["", ["#!", "sh"]]}}, "IyFzaA=="),
        ({"Fn::ImportValue": "shared"}, "value"),
        ({"plain": [1, {"x": True}]}, {"plain": [1, {"x": True}]}),
        ({"kept": 1, "dropped": {"Ref": "AWS::NoValue"}}, {"kept": 1}),
        ([1, {"Ref": "AWS::NoValue"}], [1]),
    ],
)
def test_functions_resolve(value: Any, result: Any) -> None:
    assert _scope().resolve(value) == result


def test_conditions_choose_branches() -> None:
    scope = _scope(
        {
            "Conditions": {
                "Four": {"Fn::Equals": [ref("Size"), 4]},
                "NotFour": {"Fn::Not": [{"Condition": "Four"}]},
                "Both": {"Fn::And": [{"Condition": "Four"}, {"Condition": "NotFour"}]},
                "Either": {"Fn::Or": [{"Condition": "Four"}, {"Condition": "NotFour"}]},
                "Among": {"Fn::Contains": [ref("Zones"), "b"]},
            }
        }
    )
    assert [scope.condition(name) for name in ("Four", "NotFour", "Both", "Either", "Among")] == [
        True,
        False,
        False,
        True,
        True,
    ]
    assert scope.resolve({"Fn::If": ["Four", "yes", ref("Missing")]}) == "yes", "the other branch is not looked at"
    assert scope.resolve({"Fn::If": ["Four", {"Ref": "AWS::NoValue"}, 1]}) is NO_VALUE
    assert scope.resolve({"Fn::If": ["NotFour", ref("Missing"), "no"]}) == "no"


def test_mappings_are_looked_up() -> None:
    scope = _scope({"Mappings": {"Regions": {"us-east-1": {"arch": "x86"}}}})
    assert scope.resolve({"Fn::FindInMap": ["Regions", {"Ref": "AWS::Region"}, "arch"]}) == "x86"


_SELECT = "Template error: Fn::Select cannot select nonexistent value at index "
_MAPPING = "Template error: Unable to get mapping for "
_FORMAT = "Template format error:"
_UNKNOWN = (
    " is not a condition that the embedded cloud supports "
    "(Condition, Fn::Equals, Fn::Not, Fn::And, Fn::Or, Fn::Contains)"
)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"Fn::Select": [-1, ["a"]]}, f"{_SELECT}-1"),
        ({"Fn::Select": [1, ["a"]]}, f"{_SELECT}1"),
        ({"Fn::Select": [0, "text"]}, f"{_SELECT}0"),
        ({"Fn::FindInMap": ["No", "such", "map"]}, f"{_MAPPING}No::such::map"),
        ({"Fn::FindInMap": ["Sizes", 1, "small", "x"]}, f"{_MAPPING}Sizes::1::small::x"),
        ({"Fn::ImportValue": "nothing"}, "No export named nothing found."),
        ({"Fn::If": ["Unknown", 1, 2]}, f"{_FORMAT} Unresolved condition dependency Unknown in the template"),
        ({"Fn::If": ["Odd", 1, 2]}, f"{_FORMAT} {{'Fn::Xor': []}}{_UNKNOWN}"),
        ({"Fn::If": ["Bare", 1, 2]}, f"{_FORMAT} 'yes'{_UNKNOWN}"),
        ({"Fn::If": ["Two", 1, 2]}, f"{_FORMAT} {{'Fn::Not': [], 'Fn::Or': []}}{_UNKNOWN}"),
    ],
)
def test_unresolvable_references_are_reported(value: Any, message: str) -> None:
    conditions = {"Odd": {"Fn::Xor": []}, "Bare": "yes", "Two": {"Fn::Not": [], "Fn::Or": []}}
    with pytest.raises(ValidationError) as refused:
        _scope({"Mappings": {"Sizes": {"1": {"small": "x"}}}, "Conditions": conditions}).resolve(value)
    assert str(refused.value) == f"ValidationError: {message}"


def test_function_must_be_only_key_of_its_object() -> None:
    assert _scope().resolve({"Ref": "Vpc", "Other": ref("Size")}) == {"Ref": "Vpc", "Other": "4"}
    assert _scope().resolve({"Fn::Unknown": ref("Size")}) == {"Fn::Unknown": "4"}


def test_condition_can_be_a_value_and_is_evaluated_once() -> None:
    scope = _scope({"Conditions": {"Four": {"Fn::Equals": [ref("Size"), 4]}}})
    assert scope.condition("Four")
    scope._template = {}
    assert scope.condition("Four")
    for value in (
        {"Fn::Equals": [1, "1"]},
        {"Fn::Not": [{"Fn::Equals": [1, 2]}]},
        {"Fn::And": [{"Condition": "Four"}]},
        {"Fn::Or": [{"Condition": "Four"}]},
        {"Fn::Contains": [[1, 2], "2"]},
    ):
        assert scope.resolve(value) is True


def test_references_are_found_in_every_form() -> None:
    value = {
        "a": ref("One"),
        "b": [{"Fn::GetAtt": ["Two", "X"]}, {"Fn::GetAtt": "Three.X.Y"}],
        "c": {"Fn::Sub": ["${Four} ${Five.X.Y} ${!Not} ${ Own }", {"Own": ref("Six")}]},
    }
    assert references(value) == {"One", "Two", "Three", "Four", "Five", "Six"}
    assert references({"Fn::Sub": "${Seven}-${AWS::Region}"}) == {"Seven", "AWS::Region"}
    assert references({"Ref": ["a list is no name"]}) == set()


def test_references_and_depends_on_are_needs() -> None:
    needs = dependencies(
        {
            "A": {"Properties": {"x": ref("B"), "own": ref("A"), "p": ref("Parameter")}},
            "B": {"DependsOn": "C"},
            "C": {"DependsOn": ["D"]},
            "D": {},
        }
    )
    assert needs == {"A": {"B"}, "B": {"C"}, "C": {"D"}, "D": set()}
    assert order(needs) == ["D", "C", "B", "A"]


def test_circular_dependency_is_reported() -> None:
    with pytest.raises(ValidationError, match=r"Circular dependency between resources: \[(A, B, A|B, A, B)\]"):
        order({"A": {"B"}, "B": {"A"}})


def test_group_is_created_last() -> None:
    needs = dependencies(nodes(1))
    assert order(needs)[-1] == "Nodes"
