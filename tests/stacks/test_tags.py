"""Tags, boundary and protection are on everything that takes them."""

from __future__ import annotations

from tests.stacks.clusters.template import Template
from tests.stacks.conftest import Synthesise

BOUNDARY = "arn:aws:iam::123456789012:policy/team/boundary"


def test_the_users_tags_are_wherever_the_clusters_tag_is(synthesise: Synthesise) -> None:
    template = synthesise(tags=("team=vision", "cost center=42"), idle_minutes=30, budget_usd=5.0, alarms=True)
    seen = 0
    for id, item in template.resources.items():
        properties = item.get("Properties", {})
        found = properties.get("Tags") or properties.get("FileSystemTags")
        if isinstance(found, list):
            tags = {tag["Key"]: tag["Value"] for tag in found}
            assert (tags.get("team"), tags.get("cost center")) == ("vision", "42"), id
            seen += 1
    assert seen > 20


def test_instances_and_their_volumes_carry_the_tags(synthesise: Synthesise) -> None:
    template = synthesise(tags=("team=vision",))
    for group in ("MasterGroup", "WorkerGroup"):
        specifications = template.template_of(group)["TagSpecifications"]
        tagged = {each["ResourceType"]: {tag["Key"] for tag in each["Tags"]} for each in specifications}
        assert all("team" in tagged[kind] for kind in ("instance", "volume"))
        assert {"Key": "team", "PropagateAtLaunch": True, "Value": "vision"} in template.resources[group]["Properties"][
            "Tags"
        ]


def test_every_role_is_within_the_boundary_and_none_without_one(synthesise: Synthesise, template: Template) -> None:
    bounded = synthesise(permissions_boundary=BOUNDARY, node_logs=True, alarms=True, budget_usd=5.0)
    roles = bounded.of("AWS::IAM::Role")
    assert {role["PermissionsBoundary"] for role in roles.values()} == {BOUNDARY}
    assert not any("PermissionsBoundary" in role for role in template.of("AWS::IAM::Role").values())


def test_instances_are_protected_on_request(synthesise: Synthesise, template: Template) -> None:
    protected = synthesise(protect_instances=True)
    for group in ("MasterGroup", "WorkerGroup"):
        assert protected.template_of(group)["DisableApiTermination"] is True
        assert "DisableApiTermination" not in template.template_of(group)


def test_the_stack_is_protected_on_request() -> None:
    from aws_cdk import App

    from stacks.cluster import ClusterStack
    from stacks.config import ClusterConfig
    from tests.stacks.conftest import SSH_CIDR

    stacks = [
        ClusterStack(App(analytics_reporting=False), ClusterConfig(ssh_cidr=SSH_CIDR, termination_protection=choice))
        for choice in (True, False)
    ]
    assert [bool(stack.termination_protection) for stack in stacks] == [True, False]


def test_no_change_of_tags_writes_the_first_value_again_over_what_the_master_wrote(
    synthesise: Synthesise, template: Template
) -> None:
    tagged = synthesise(tags=("team=vision", "cost center=42"), idle_minutes=30, budget_usd=5.0, alarms=True)
    assert tagged.of("AWS::SSM::Parameter") == template.of("AWS::SSM::Parameter")
    assert len(template.of("AWS::SSM::Parameter")) == 2
