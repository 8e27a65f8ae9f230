"""Parameters: defaults, previous values, the parameter store, rules."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.api.cloudformation import parameters
from localcloud.api.cloudformation.actions.base import show_parameters
from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.intrinsics import Scope
from localcloud.api.cloudformation.parameters import Parameter
from localcloud.api.cloudformation.stacks import Target
from refusals.templates import ref


class _Store:
    """Client of SSM with one parameter."""

    def client(self, service: str) -> _Store:
        assert service == "ssm"
        return self

    def get_parameter(self, *, Name: str) -> dict[str, Any]:
        if Name not in ("/ami", "/secret"):
            raise ClientError({"Error": {"Code": "ParameterNotFound", "Message": ""}}, "GetParameter")
        return {"Parameter": {"Value": "ami-1", "Type": "String" if Name == "/ami" else "SecureString"}}


def _resolve(declared: dict[str, Any], **chosen: str) -> dict[str, Any]:
    found = parameters.resolve({"Parameters": declared}, chosen, _Store())
    return {key: parameter.value for key, parameter in found.items()}


def test_values_are_given_or_by_default() -> None:
    declared = {"A": {"Type": "String", "Default": "x"}, "L": {"Type": "CommaDelimitedList"}}
    assert _resolve(declared, L="1, 2") == {"A": "x", "L": ["1", "2"]}


def test_parameters_of_the_store_are_fetched() -> None:
    declared = {"Ami": {"Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", "Default": "/ami"}}
    found = parameters.resolve({"Parameters": declared}, {}, _Store())["Ami"]
    assert (found.given, found.value, found.stored) == ("/ami", "ami-1", True)
    with pytest.raises(ValidationError) as refused:
        _resolve(declared, Ami="/other")
    assert (
        str(refused.value)
        == "ValidationError: Unable to fetch parameters [/other] from parameter store for this account."
    )


@pytest.mark.parametrize(
    ("declaration", "given", "message"),
    [
        ({"AllowedValues": ["a", "b"]}, "c", "Parameter 'P' must be one of AllowedValues"),
        ({"AllowedPattern": "[a-z]+"}, "A", "Parameter 'P' must match pattern [a-z]+"),
        ({"AllowedPattern": "[a-z]+"}, "ab1", "Parameter 'P' must match pattern [a-z]+"),
        (
            {"AllowedPattern": "a", "ConstraintDescription": "one a"},
            "b",
            "Parameter P failed to satisfy constraint: one a",
        ),
        ({"Type": "Number"}, "x", "Parameter 'P' must be a number."),
        ({"Type": "Number", "MaxValue": 3}, "4", "Parameter 'P' must be a number not greater than 3"),
        ({"Type": "Number", "MinValue": 1}, "0.5", "Parameter 'P' must be a number not less than 1"),
        ({"MinLength": 2}, "x", "Parameter 'P' must contain at least 2 characters"),
        ({"MaxLength": 3}, "xyzz", "Parameter 'P' must contain at most 3 characters"),
        ({"Type": "String"}, "x" * 4097, "Parameter 'P' must contain at most 4096 characters"),
    ],
)
def test_invalid_value_is_rejected_with_rule(declaration: dict[str, Any], given: str, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _resolve({"P": declaration}, P=given)
    assert str(refused.value) == f"ValidationError: {message}"


def test_missing_value_is_reported() -> None:
    with pytest.raises(ValidationError, match=r"^ValidationError: Parameters: \[A, B\] must have values$"):
        _resolve({"A": {"Type": "String"}, "B": {"Type": "String"}})


def test_previous_value_is_the_given_one_and_new_parameter_has_none() -> None:
    old = {"Ami": Parameter(key="Ami", given="/ami", value="ami-0", secret=False, stored=True)}
    given = [{"ParameterKey": key, "UsePreviousValue": True} for key in ("Ami", "New")]
    assert parameters.choose({"Ami": {}, "New": {"Default": "x"}}, given, old) == {"Ami": "/ami"}


def test_unknown_parameter_is_rejected() -> None:
    with pytest.raises(ValidationError, match=r"^ValidationError: Parameters: \[X\] do not exist in the template$"):
        parameters.choose({}, [{"ParameterKey": "X", "ParameterValue": "1"}], {})


@pytest.mark.parametrize(
    ("declaration", "given"),
    [
        ({"AllowedValues": [1, 2]}, "2"),
        ({"Type": "Number", "MinValue": 1, "MaxValue": 3}, "1"),
        ({"Type": "Number", "MinValue": 1, "MaxValue": 3}, "3"),
        ({"Type": "Number"}, "-1e9"),
        ({"MinLength": 2, "MaxLength": 3}, "xy"),
        ({"MinLength": 2, "MaxLength": 3}, "xyz"),
        ({"Type": "String"}, ""),
        ({"Type": "String"}, "x" * 4096),  # CloudFormation's maximum
    ],
)
def test_bounds_of_a_declaration_are_allowed(declaration: dict[str, Any], given: str) -> None:
    assert _resolve({"P": declaration}, P=given) == {"P": given}


@pytest.mark.parametrize(("declared", "secret"), [({}, False), ({"NoEcho": True}, True), ({"NoEcho": "true"}, True)])
def test_only_noecho_parameters_are_secret(declared: dict[str, Any], secret: bool) -> None:
    template = {"Parameters": {"P": {"Type": "String", **declared}}}
    assert parameters.resolve(template, {"P": "x"}, _Store())["P"].secret is secret


def test_secure_strings_of_the_store_are_rejected() -> None:
    stored = {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/secret"}
    with pytest.raises(
        ValidationError, match=r"Parameters \[/secret\] referenced by template have types not supported"
    ):
        _resolve({"P": stored})


@pytest.mark.parametrize(("declared", "shown"), [({}, "ami-1"), ({"NoEcho": True}, "****")])
def test_both_values_of_noecho_parameter_are_masked(declared: dict[str, Any], shown: str) -> None:
    template = {"Parameters": {"P": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/ami", **declared}}}
    target = Target(template=template, body="", parameters=parameters.resolve(template, {}, _Store()), tags={})
    (found,) = show_parameters(target)
    assert found == {"ParameterKey": "P", "ParameterValue": shown if declared else "/ami", "ResolvedValue": shown}


def test_list_parameters_are_split_and_empty_list_has_no_items() -> None:
    stored = {"Type": "AWS::SSM::Parameter::Value<List<String>>", "Default": "/ami"}
    subnets = {"Type": "List<AWS::EC2::Subnet::Id>"}
    commas = {"Type": "AWS::SSM::Parameter::Value<CommaDelimitedList>", "Default": "/ami"}
    found = _resolve({"A": stored, "B": subnets, "C": commas}, B="")
    assert found == {"A": ["ami-1"], "B": [], "C": ["ami-1"]}


def test_given_value_is_text_and_previous_value_is_used_on_request() -> None:
    old = {"A": Parameter(key="A", given="old", value="old", secret=False, stored=False)}
    given: list[dict[str, Any]] = [
        {"ParameterKey": "A", "UsePreviousValue": False, "ParameterValue": 7},
        {"ParameterKey": "B"},
    ]
    assert parameters.choose({"A": {}, "B": {}}, given, old) == {"A": "7"}


_EMPTY_SCOPE = Scope(
    {}, parameters={"P": "x"}, pseudo={}, zones=[], exports={}, reference=str, attribute=lambda name, key: ""
)
_NEVER, _ALWAYS = {"Fn::Equals": [ref("P"), "y"]}, {"Fn::Equals": [ref("P"), "x"]}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({}, ""),
        ({"Bare": {}, "R": {"RuleCondition": _NEVER, "Assertions": [{"Assert": _NEVER}]}}, ""),
        ({"R": {"RuleCondition": _ALWAYS, "Assertions": [{"Assert": _ALWAYS}]}}, ""),
        ({"R": {"Assertions": [{"Assert": _ALWAYS}, {"Assert": _NEVER}]}}, "R failed: its assertion does not hold"),
        ({"R": {"Assertions": [{"Assert": _NEVER, "AssertDescription": "bootstrap again"}]}}, "R failed: boot"),
        (
            {
                "Skipped": {"RuleCondition": _NEVER, "Assertions": [{"Assert": _NEVER}]},
                "R": {"Assertions": [{"Assert": _NEVER}]},
            },
            "Rule R failed",
        ),
    ],
)
def test_rules_with_true_condition_are_checked(rules: dict[str, Any], message: str) -> None:
    if not message:
        parameters.check_rules({"Rules": rules}, _EMPTY_SCOPE)
        return
    with pytest.raises(ValidationError, match=message):
        parameters.check_rules({"Rules": rules}, _EMPTY_SCOPE)
