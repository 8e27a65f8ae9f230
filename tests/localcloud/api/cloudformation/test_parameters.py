"""Parameters: defaults, previous values, the parameter store, rules."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.api.cloudformation import parameters
from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.intrinsics import Scope
from localcloud.api.cloudformation.parameters import Parameter


class _Store:
    """Hold one parameter, as SSM's client would return it."""

    def client(self, service: str) -> _Store:
        assert service == "ssm"
        return self

    def get_parameter(self, *, Name: str) -> dict[str, Any]:
        if Name != "/ami":
            raise ClientError({"Error": {"Code": "ParameterNotFound", "Message": ""}}, "GetParameter")
        return {"Parameter": {"Value": "ami-1"}}


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
    with pytest.raises(ValidationError, match=r"Unable to fetch parameters \[/other\]"):
        _resolve(declared, Ami="/other")


@pytest.mark.parametrize(
    ("declaration", "given", "message"),
    [
        ({"AllowedValues": ["a", "b"]}, "c", "one of AllowedValues"),
        ({"AllowedPattern": "[a-z]+"}, "A", "must match pattern"),
        ({"Type": "Number"}, "x", "must be a number"),
        ({"Type": "Number", "MaxValue": 3}, "4", "MaxValue"),
        ({"MinLength": 2}, "x", "MinLength"),
    ],
)
def test_values_are_checked(declaration: dict[str, Any], given: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _resolve({"P": declaration}, P=given)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ValidationError, match=r"Parameters: \[A, B\] must have values"):
        _resolve({"A": {"Type": "String"}, "B": {"Type": "String"}})


def test_a_previous_value_is_the_given_one_and_a_new_parameter_takes_its_default() -> None:
    old = {"Ami": Parameter(key="Ami", given="/ami", value="ami-0", secret=False, stored=True)}
    given = [{"ParameterKey": key, "UsePreviousValue": True} for key in ("Ami", "New")]
    assert parameters.choose({"Ami": {}, "New": {"Default": "x"}}, given, old) == {"Ami": "/ami"}


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"\[X\] do not exist in the template"):
        parameters.choose({}, [{"ParameterKey": "X", "ParameterValue": "1"}], {})


@pytest.mark.parametrize(("version", "holds"), [("21", True), ("5", False)])
def test_the_cdks_rule_on_the_bootstrap_version_is_checked(version: str, holds: bool) -> None:
    assertion = {"Fn::Not": [{"Fn::Contains": [["1", "2", "3", "4", "5"], {"Ref": "BootstrapVersion"}]}]}
    rule = {"Assertions": [{"Assert": assertion, "AssertDescription": "bootstrap again"}]}
    scope = Scope(
        {},
        parameters={"BootstrapVersion": version},
        pseudo={},
        zones=[],
        exports={},
        reference=str,
        attribute=lambda name, key: "",
    )
    template = {"Rules": {"CheckBootstrapVersion": rule}}
    if holds:
        parameters.check_rules(template, scope)
    else:
        with pytest.raises(ValidationError, match="Rule CheckBootstrapVersion failed: bootstrap again"):
            parameters.check_rules(template, scope)
