"""A template with unsupported parts is rejected as a whole, with the reasons."""

from __future__ import annotations

from typing import Any

import pytest

from api.templates import nodes
from localcloud.api.cloudformation.errors import ValidationError
from localcloud.api.cloudformation.types.allowlist import RESOURCE_TYPES, check, needed_capabilities, unknown_paths
from refusals.templates import ref, resource


def _check(resources: dict[str, Any], **sections: Any) -> None:
    check({"Resources": resources, **sections}, holds=lambda name: name == "True")


def test_cluster_is_supported() -> None:
    _check(nodes(2))


def test_every_finding_names_its_resource() -> None:
    resources = nodes(2)
    resources["Stream"] = resource("Kinesis::Stream")
    resources["Nodes"]["Properties"]["PlacementGroup"] = "x"
    resources["Template"]["Properties"]["LaunchTemplateData"]["InstanceMarketOptions"] = {"MarketType": "spot"}
    resources["Vpc"] |= {"Condition2": "x", "CreationPolicy": {"ResourceSignal": {}}}
    with pytest.raises(ValidationError) as caught:
        _check(resources)
    for text in (
        "does not support AWS::Kinesis::Stream (resource Stream)",
        "property PlacementGroup of AWS::AutoScaling::AutoScalingGroup (resource Nodes)",
        "property LaunchTemplateData.InstanceMarketOptions of AWS::EC2::LaunchTemplate (resource Template)",
        "attribute Condition2 of a resource (Vpc, AWS::EC2::VPC)",
        "CreationPolicy (resource Vpc",
    ):
        assert text in caught.value.message


def test_unsupported_settings_of_mixed_group_are_rejected_with_reason() -> None:
    resources = nodes(1)
    resources["Nodes"]["Properties"]["MixedInstancesPolicy"] = {
        "InstancesDistribution": {"OnDemandBaseCapacity": 0, "SpotMaxPrice": "0.10"},
        "LaunchTemplate": {"Overrides": [{"InstanceType": "c5.large", "WeightedCapacity": "2"}]},
    }
    with pytest.raises(ValidationError) as caught:
        _check(resources)
    assert "InstancesDistribution.SpotMaxPrice" in caught.value.message
    assert "its instances have no prices" in caught.value.message
    assert "it counts each instance as one" in caught.value.message
    assert "OnDemandBaseCapacity" not in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"DeletionPolicy": "Snapshot"}, "DeletionPolicy Snapshot"),
        ({"UpdatePolicy": {"AutoScalingReplacingUpdate": {"WillReplace": True}}}, "AutoScalingReplacingUpdate"),
        ({"CreationPolicy": {"ResourceSignal": {"Timeout": "15 minutes"}}}, "not an ISO 8601 duration"),
        ({"CreationPolicy": {"ResourceSignal": {"Number": 1}}}, "ResourceSignal.Number"),
    ],
)
def test_policies_are_checked(change: dict[str, Any], message: str) -> None:
    resources = nodes(1)
    resources["Nodes"] |= change
    with pytest.raises(ValidationError, match=message):
        _check(resources)


def test_unknown_functions_and_dynamic_references_are_rejected() -> None:
    resources = nodes(1)
    resources["Vpc"]["Properties"]["CidrBlock"] = {"Fn::Cidr": ["10.0.0.0/8", 1, 16]}
    resources["Template"]["Properties"]["LaunchTemplateData"]["ImageId"] = "{{resolve:ssm:/ami}}"
    with pytest.raises(ValidationError, match=r"Fn::Cidr.*dynamic references"):
        _check(resources)
    listed = {"X": {"Value": {"Fn::Join": ["", ["x", "{{resolve:ssm:/ami}}"]]}}}
    with pytest.raises(ValidationError, match=r"dynamic references such as {{resolve:ssm:/ami}} \(output X\)"):
        _check(nodes(1), Outputs=listed)


def test_resource_with_false_condition_is_not_checked() -> None:
    resources = nodes(1)
    resources["Key"] = {"Type": "AWS::SQS::Queue", "Condition": "False", "Properties": {"Anything": 1}}
    _check(resources)
    resources["Key"]["Condition"] = "True"
    with pytest.raises(ValidationError, match="AWS::SQS::Queue"):
        _check(resources)


def test_references_must_resolve() -> None:
    resources = nodes(1)
    resources["A"]["Properties"]["VpcId"] = ref("Nowhere")
    with pytest.raises(ValidationError, match=r"Unresolved resource dependencies \[Nowhere\]"):
        _check(resources)
    with pytest.raises(ValidationError, match=r"\[Gone\] in the Outputs block"):
        _check(nodes(1), Outputs={"X": {"Value": ref("Gone")}})
    with pytest.raises(ValidationError, match="resource Vpc does not support attribute type Color"):
        _check(nodes(1), Outputs={"X": {"Value": {"Fn::GetAtt": ["Vpc", "Color"]}}})


def test_lists_and_both_branches_are_checked() -> None:
    known = frozenset({"A.B", "C"})
    assert unknown_paths({"A": [{"B": 1}, {"X": 1}], "C": {"any": 1}}, known) == ["A.X"]
    assert unknown_paths({"A": {"Fn::If": ["c", {"B": 1}, {"Y": 1}]}}, known) == ["A.Y"]


@pytest.mark.parametrize("resource_type", RESOURCE_TYPES.values(), ids=lambda resource_type: resource_type.name)
def test_every_inert_property_has_a_reason(resource_type: Any) -> None:
    assert all(len(reason) > 10 for reason in resource_type.inert.values())
    assert not resource_type.honoured & set(resource_type.inert)
    assert not resource_type.paths() & set(resource_type.refused)
    first = {path.split(".", 1)[0] for path in resource_type.paths()}
    assert resource_type.replaced_by <= first


def test_iam_resources_ask_for_capabilities() -> None:
    role: dict[str, Any] = resource("IAM::Role")
    assert needed_capabilities({"Resources": nodes(1)}) == []
    assert needed_capabilities({"Resources": {"R": role}}) == ["CAPABILITY_IAM"]
    role["Properties"]["RoleName"] = "x"
    assert needed_capabilities({"Resources": {"R": role}}) == ["CAPABILITY_NAMED_IAM"]
