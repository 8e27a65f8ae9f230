"""The stack as a whole: its outputs, names and tags, and forbidden content."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aws_cdk import App

from stacks.cluster import ClusterStack
from stacks.config import CLUSTER_TAG, ClusterConfig, Output
from stacks.cross_key_checks import check
from tests.stacks.clusters.eight import SSH_CIDR
from tests.stacks.clusters.invariants import broken
from tests.stacks.clusters.synthesis import Inspected
from tests.stacks.clusters.template import Template
from tests.stacks.conftest import VARIANTS, Variant


@pytest.mark.parametrize("name", VARIANTS)
def test_each_configuration_of_these_tests_is_valid(name: str, variant: Variant) -> None:
    config = ClusterConfig(**{"ssh_cidr": SSH_CIDR, **VARIANTS[name]})
    assert list(check(config)) == []
    assert broken(variant(name), config) == []


def test_outputs_match_the_contract(template: Template, inspected: Callable[[str], Inspected]) -> None:
    contract = {value for key, value in vars(Output).items() if key.isupper()}
    assert set(inspected("everything").template.document["Outputs"]) == contract
    optional = {Output.ALARM_TOPICS, Output.FSX_ID, Output.FSX_MOUNT, Output.SCRATCH_MOUNT}
    assert set(template.document["Outputs"]) == contract - optional


def test_outputs_contain_configuration_for_the_tasks(variant: Variant) -> None:
    outputs = variant("own images").document["Outputs"]
    values = {key: outputs[key]["Value"] for key in (Output.MAX_WORKERS, Output.LOGIN_USER, Output.EFS_MOUNT)}
    assert values == {Output.MAX_WORKERS: "50", Output.LOGIN_USER: "ubuntu", Output.EFS_MOUNT: "/mnt/efs"}


def test_template_works_in_any_account_and_region(template: Template) -> None:
    assert "us-east-1" not in template.text()
    assert "arn:aws:" not in template.text()


def test_every_taggable_resource_has_tags_of_cluster_and_user(
    inspected: Callable[[str], Inspected],
) -> None:
    wanted = {CLUSTER_TAG: "everything", "team": "vision", "cost center": "42"}
    template, seen = inspected("everything").template, 0
    for id, item in template.resources.items():
        properties = item.get("Properties", {})
        tags = properties.get("Tags") or properties.get("FileSystemTags")
        if isinstance(tags, list):  # a parameter of Systems Manager has tags by key
            tags = {tag["Key"]: tag["Value"] for tag in tags}
        if tags is not None:
            assert {key: tags.get(key) for key in wanted} == wanted, id
            seen += 1
    assert seen > 20
    for group in ("MasterGroup", "WorkerGroup"):
        for each in template.template_of(group)["TagSpecifications"]:
            assert wanted.items() <= {tag["Key"]: tag["Value"] for tag in each["Tags"]}.items()


def test_parameters_written_by_master_do_not_depend_on_tags(
    template: Template, inspected: Callable[[str], Inspected]
) -> None:
    parameters = template.of("AWS::SSM::Parameter")
    assert len(parameters) == 2
    assert parameters.items() <= inspected("everything").template.of("AWS::SSM::Parameter").items()


def test_two_clusters_share_no_fixed_name(template: Template) -> None:
    named = {"BucketName", "RoleName", "GroupName", "AutoScalingGroupName", "LaunchTemplateName", "InstanceProfileName"}
    for id, item in template.resources.items():
        values = item.get("Properties", {})
        assert not [name for name in named & values.keys() if "Ref" not in values[name]], id


@pytest.mark.parametrize("protected", [True, False])
def test_stack_is_protected_on_request(template: Template, protected: bool) -> None:
    config = ClusterConfig(ssh_cidr=SSH_CIDR, termination_protection=protected)
    assert bool(ClusterStack(App(analytics_reporting=False), config).termination_protection) is protected
