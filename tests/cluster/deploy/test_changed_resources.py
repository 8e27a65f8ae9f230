"""Change sets: CloudFormation's answer becomes actions, values and retained resources."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.deploy.changed_resources import (
    ADDED,
    CHANGED,
    GROUP,
    PERHAPS_REPLACED,
    REMOVED,
    REPLACED,
    Difference,
    changed_parameters,
    compare,
    parse,
)


def told(action: str, name: str, type_name: str = "AWS::EC2::Subnet", **more: Any) -> dict[str, Any]:
    return {
        "Type": "Resource",
        "ResourceChange": {"Action": action, "LogicalResourceId": name, "ResourceType": type_name, **more},
    }


def detail(name: str, recreation: str = "Never", attribute: str = "Properties", **more: Any) -> dict[str, Any]:
    return {"Target": {"Attribute": attribute, "Name": name, "RequiresRecreation": recreation}, **more}


def template(**resources: dict[str, Any]) -> dict[str, Any]:
    return {"Resources": resources}


def test_worst_change_is_listed_first() -> None:
    described = {
        "Changes": [
            told("Add", "A"),
            told("Modify", "M", Replacement="False"),
            told("Modify", "C", Replacement="Conditional"),
            told("Modify", "R", Replacement="True"),
            told("Remove", "D"),
            told("Dynamic", "N"),
        ]
    }
    found = parse(described, {}, {}, {})
    assert [(each.action, each.logical_id) for each in found] == [
        (REMOVED, "D"), (REPLACED, "R"), (PERHAPS_REPLACED, "C"), (PERHAPS_REPLACED, "N"), (CHANGED, "M"), (ADDED, "A"),
    ]  # fmt: skip
    assert [each.ends for each in found] == [True, True, True, True, False, False]


def test_change_shows_construct_properties_and_values() -> None:
    meta = {"aws:cdk:path": "deepcdk/Workers/Template/Resource"}
    data = {"InstanceType": "c5.2xlarge", "UserData": {"Fn::Base64": "x"}, "Disks": [{"Ebs": {"VolumeSize": 100}}]}
    new = {"InstanceType": "c5.4xlarge", "UserData": {"Fn::Base64": "y"}, "Disks": [{"Ebs": {"VolumeSize": 120}}]}
    (change,) = parse(
        {"Changes": [told("Modify", "T", Replacement="False", Details=[detail("LaunchTemplateData")])]},
        template(T={"Metadata": meta, "Properties": {"LaunchTemplateData": data}}),
        template(T={"Metadata": meta, "Properties": {"LaunchTemplateData": new}}),
        {},
    )
    assert change.path == "Workers/Template"
    assert change.properties == {"LaunchTemplateData"}
    assert list(map(str, change.differences)) == [
        "VolumeSize 100 -> 120", "InstanceType c5.2xlarge -> c5.4xlarge", "UserData",
    ]  # fmt: skip


def test_new_value_of_parameter_is_shown_in_resources_using_it() -> None:
    declared = template(T={"Properties": {"LaunchTemplateData": {"ImageId": {"Ref": "Image"}}}})
    because = detail("LaunchTemplateData", ChangeSource="ParameterReference", CausingEntity="Image")
    values = changed_parameters(
        [{"ParameterKey": "Image", "ParameterValue": "/image", "ResolvedValue": "ami-1"}, {"ParameterKey": "Same"}],
        [{"ParameterKey": "Image", "ParameterValue": "/image", "ResolvedValue": "ami-2"}, {"ParameterKey": "Same"}],
    )
    assert values == {"Image": ("ami-1", "ami-2")}
    change = told("Modify", "T", Replacement="False", Details=[because])
    (found,) = parse({"Changes": [change]}, declared, declared, values)
    assert list(map(str, found.differences)) == ["ImageId ami-1 -> ami-2"]


@pytest.mark.parametrize(
    ("change", "policies", "kept"),
    [
        (told("Remove", "X", PolicyAction="Retain"), {}, True),
        (told("Remove", "X", PolicyAction="Delete"), {"DeletionPolicy": "Retain"}, False),
        (told("Remove", "X"), {"DeletionPolicy": "RetainExceptOnCreate"}, True),
        (told("Remove", "X"), {}, False),
        (told("Modify", "X", Replacement="True", PolicyAction="ReplaceAndRetain"), {}, True),
        (told("Modify", "X", Replacement="True", PolicyAction="ReplaceAndDelete"), {}, False),
        (told("Modify", "X", Replacement="True"), {"UpdateReplacePolicy": "Retain"}, True),
    ],
)
def test_retention_comes_from_the_change_set_or_else_from_the_template(
    change: dict[str, Any], policies: dict[str, str], kept: bool
) -> None:
    (found,) = parse({"Changes": [change]}, template(X=policies), {}, {})
    assert found.kept is kept


def follower(name: str, cause: str, source: str = "ResourceReference") -> dict[str, Any]:
    why = detail("GroupId", "Always", ChangeSource=source, CausingEntity=cause)
    return told("Modify", name, Replacement="Conditional", Details=[why])


@pytest.mark.parametrize(("will_replace", "action"), [(True, REPLACED), ("true", REPLACED), (False, CHANGED)])
def test_group_is_replaced_for_its_launch_template_only_by_its_update_policy(will_replace: object, action: str) -> None:
    declared = {"UpdatePolicy": {"AutoScalingReplacingUpdate": {"WillReplace": will_replace}}}
    why = detail("LaunchTemplate", "Conditionally", ChangeSource="ResourceAttribute", CausingEntity="T.Latest")
    group = told("Modify", "G", GROUP, Replacement="Conditional", Details=[why])
    found = parse({"Changes": [group, follower("Hook", "G"), follower("Other", "Hook")]}, {}, template(G=declared), {})
    actions = {each.logical_id: each.action for each in found}
    followers = PERHAPS_REPLACED if action == REPLACED else CHANGED
    assert actions == {"G": action, "Hook": followers, "Other": followers}


def test_reference_to_kept_resource_causes_no_replacement() -> None:
    stays = told("Modify", "S", "AWS::EC2::SecurityGroup", Replacement="False")
    goes = told("Modify", "S", "AWS::EC2::SecurityGroup", Replacement="True")
    for source, cause, after_stay in (
        ("ResourceAttribute", "S.GroupId", CHANGED),
        ("ResourceReference", "S", CHANGED),
        ("ResourceAttribute", "S.Content", PERHAPS_REPLACED),
        ("DirectModification", "", PERHAPS_REPLACED),
    ):
        for other, action in ((stays, after_stay), (goes, PERHAPS_REPLACED)):
            found = parse({"Changes": [other, follower("R", cause, source)]}, {}, {}, {})
            assert {each.logical_id: each.action for each in found}["R"] == action, (source, cause)


def test_policies_and_tags_are_distinguished_from_properties() -> None:
    details = [detail("Size", "Always"), detail("", attribute="Tags"), detail("", attribute="UpdatePolicy")]
    change = told("Modify", "X", Replacement="True", Details=[*details, detail("", attribute="Metadata")])
    (found,) = parse({"Changes": [change]}, {}, {}, {})
    assert found.properties == {"Size", "Tags"}
    assert (found.recreating, found.policies) == (("Size",), ("UpdatePolicy",))


def test_added_and_removed_values_are_shown_as_none() -> None:
    assert list(map(str, compare({"A": 1}, {"B": True}))) == ["A 1 -> none", "B none -> true"]
    assert list(compare({"A": [1]}, {"A": [1, 2]})) == [Difference(name="A", before="[1]", after="[1,2]")]
    assert str(Difference(name="A.B", before="", after="")) == "B"


VALUES = st.recursive(
    st.booleans() | st.integers(0, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["Ref", "A", "B"]), inner, max_size=2),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_only_different_values_have_a_difference(old: Any, new: Any) -> None:
    assert bool(list(compare(old, new))) == (old != new)
