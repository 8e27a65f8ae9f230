"""The meaning of changes: losses are described in words, and changes that end a live run are detected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cluster.deploy.change_effects import TEMPLATE, Effect, change_table, describe_effect, summary
from cluster.deploy.changed_resources import ADDED, CHANGED, GROUP, PERHAPS_REPLACED, REMOVED, REPLACED, Change


def change(action: str, type_name: str, **more: Any) -> Change:
    values: dict[str, Any] = {
        "logical_id": "X", "physical_id": "x-1", "path": "Workers/X", "properties": frozenset(), "recreating": (),
        "follows": frozenset(),
        "policies": (), "differences": (), "kept": False,
    }  # fmt: skip
    return Change(action=action, type=type_name, **{**values, **more})


def group(
    properties: Sequence[str], declared: Mapping[str, str] = {}, *, size: int = 4, policy: Mapping[str, Any] = {}
) -> Effect:
    template = {"Resources": {"X": {"Properties": declared, "UpdatePolicy": policy}}}
    return describe_effect(change(CHANGED, GROUP, properties=frozenset(properties)), template, size)


def test_replaced_file_system_is_reported_with_lost_data() -> None:
    found = describe_effect(change(REPLACED, "AWS::EFS::FileSystem", recreating=("Encrypted",)), {}, None)
    assert found.details == (
        "recreated and EMPTY because Encrypted changes; ALL RUNS, CHECKPOINTS AND DATA ON IT ARE DELETED"
    )
    assert found.loses
    assert found.stops_run == "shared file system Workers/X: replaced"


def test_retained_resource_is_not_lost_but_stops_a_run() -> None:
    found = describe_effect(change(REMOVED, "AWS::EFS::FileSystem", kept=True), {}, None)
    assert found.details == "it stays in the account, unused"
    assert not found.loses
    assert found.stops_run == "shared file system Workers/X: removed"


def test_conditional_replacement_counts_as_replacement() -> None:
    found = describe_effect(change(PERHAPS_REPLACED, "AWS::EC2::Subnet", recreating=("VpcId",)), {}, None)
    assert found.details.startswith("may be recreated (known only during the change) because VpcId changes")
    assert found.stops_run


def test_changed_dashboard_or_route_stops_no_run() -> None:
    for type_name in ("AWS::CloudWatch::Dashboard", "AWS::EC2::Route", "AWS::New::Thing"):
        assert not describe_effect(change(REMOVED, type_name), {}, None).stops_run


def test_running_nodes_stay_without_update_policy() -> None:
    found = group(["LaunchTemplate"])
    assert (found.details, found.stops_run) == ("applies to new nodes; running nodes do not change", "")
    assert "running nodes keep" in describe_effect(change(CHANGED, TEMPLATE), {}, None).details


@pytest.mark.parametrize(
    "policy",
    [{"AutoScalingRollingUpdate": {"MaxBatchSize": 1}}, {"AutoScalingReplacingUpdate": {"WillReplace": "true"}}],
)
def test_update_policy_that_replaces_nodes_stops_a_run(policy: dict[str, Any]) -> None:
    found = group(["LaunchTemplate"], policy=policy)
    assert "its 4 nodes ARE REPLACED by the update policy" in found.details
    assert found.stops_run == "group of nodes Workers/X: its 4 nodes are replaced"
    assert not group(["Tags"], policy=policy).stops_run
    assert not group(["LaunchTemplate"], policy=policy, size=0).stops_run


@pytest.mark.parametrize(
    ("properties", "declared", "says", "ends"),
    [
        (["DesiredCapacity"], {"DesiredCapacity": "3"}, "1 of 4 nodes ARE TERMINATED", True),
        (["DesiredCapacity"], {"DesiredCapacity": "6", "MaxSize": "16"}, "2 more nodes start", False),
        (["MaxSize"], {"DesiredCapacity": "2", "MaxSize": "3"}, "1 of 4 nodes ARE TERMINATED", True),
        (["MaxSize"], {"DesiredCapacity": "2", "MaxSize": "32"}, "MaxSize", False),
        (["MinSize"], {"MinSize": "5"}, "1 more nodes start", False),
    ],
)
def test_shrinking_group_stops_a_run(properties: list[str], declared: dict[str, str], says: str, ends: bool) -> None:
    found = group(properties, declared)
    assert says in found.details
    assert bool(found.stops_run) is ends


def test_data_that_is_deleted_with_the_stack_is_reported() -> None:
    changed = change(CHANGED, "AWS::S3::Bucket", policies=("DeletionPolicy", "UpdateReplacePolicy"))
    assert describe_effect(changed, {"Resources": {"X": {"DeletionPolicy": "Delete"}}}, None).details == (
        "IS DELETED WITH THE STACK"
    )
    kept = describe_effect(changed, {"Resources": {"X": {"DeletionPolicy": "RetainExceptOnCreate"}}}, None)
    assert kept.details == "is kept when the stack is deleted"


def test_many_additions_are_counted_and_few_are_listed() -> None:
    added = [describe_effect(change(ADDED, "AWS::EC2::Route"), {}, None)]
    worse = describe_effect(change(REMOVED, "AWS::EC2::EIP"), {}, None)
    assert [row[0] for row in change_table("deepcdk", [worse, *added]).rows] == [REMOVED, ADDED]
    many = change_table("deepcdk", [worse, *added * 20, describe_effect(change(ADDED, GROUP), {}, None)])
    assert many.rows[1] == (ADDED, "21 resources", "route (20), group of nodes")
    assert summary([worse, *added]) == "1 REMOVED, 1 added"
    assert summary([]) == "outputs or metadata only"
