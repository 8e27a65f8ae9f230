"""Templates are parsed from JSON and YAML with the same result."""

from __future__ import annotations

import json

import pytest

from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.template import parse, walk
from refusals.templates import ref, resource

_RESOURCES = {"Vpc": resource("EC2::VPC", CidrBlock="10.0.0.0/16")}


def test_json_is_read() -> None:
    assert parse(json.dumps({"Resources": _RESOURCES}))["Resources"] == _RESOURCES


def test_short_forms_of_yaml_become_functions() -> None:
    body = """
AWSTemplateFormatVersion: 2010-09-09
Resources:
  Net:
    Type: AWS::EC2::Subnet
    Properties:
      VpcId: !Ref Vpc
      CidrBlock: !GetAtt Vpc.CidrBlock
      AvailabilityZone: !Select [0, !GetAZs ""]
      Tags: !If [Named, [{Key: Name, Value: !Sub "${AWS::StackName}-net"}], !Ref AWS::NoValue]
"""
    document = parse(body)
    assert document["AWSTemplateFormatVersion"] == "2010-09-09"
    properties = document["Resources"]["Net"]["Properties"]
    assert properties["VpcId"] == ref("Vpc")
    assert properties["CidrBlock"] == {"Fn::GetAtt": ["Vpc", "CidrBlock"]}
    assert properties["AvailabilityZone"] == {"Fn::Select": [0, {"Fn::GetAZs": ""}]}
    assert properties["Tags"]["Fn::If"][1][0]["Value"] == {"Fn::Sub": "${AWS::StackName}-net"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "neither JSON nor YAML"),
        ("just text", "unsupported structure"),
        ("{}", "At least one Resources member"),
        ('{"Resources": {"A": {}}}', r"\[/Resources/A\] Every Resources object must contain a Type"),
        ('{"Transform": "X", "Resources": {"A": {"Type": "T"}}}', "does not support the section Transform"),
    ],
)
def test_broken_template_is_rejected(body: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse(body)


def test_walk_yields_every_object() -> None:
    assert len(list(walk({"a": [{"b": {}}, 1], "c": {"d": 2}}))) == 4
