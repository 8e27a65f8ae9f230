"""The stack as a whole: outputs, names, what must not be in it."""

from __future__ import annotations

from collections.abc import Callable

from stacks.config import CLUSTER_TAG, Output
from tests.stacks.clusters.template import Template


def test_the_outputs_are_exactly_those_of_the_contract(template: Template, synthesise: Callable[..., Template]) -> None:
    contract = {value for key, value in vars(Output).items() if key.isupper()}
    whole = synthesise(
        fsx_capacity_gib=1200,
        worker_instance_type="c5d.2xlarge",
        scratch_mount="/mnt/scratch",
        alarms=True,
        alarm_emails=("ops@example.com",),
    )
    assert set(whole.document["Outputs"]) == contract
    optional = {Output.ALARM_TOPICS, Output.FSX_ID, Output.FSX_MOUNT, Output.SCRATCH_MOUNT}
    assert set(template.document["Outputs"]) == contract - optional


def test_outputs_tell_the_configuration_that_the_tasks_need(synthesise: Callable[..., Template]) -> None:
    outputs = synthesise(max_workers=7, login_user="ubuntu", efs_mount="/data").document["Outputs"]
    values = {key: outputs[key]["Value"] for key in (Output.MAX_WORKERS, Output.LOGIN_USER, Output.EFS_MOUNT)}
    assert values == {Output.MAX_WORKERS: "7", Output.LOGIN_USER: "ubuntu", Output.EFS_MOUNT: "/data"}


def test_no_lambda_and_no_custom_resource(template: Template) -> None:
    kinds = {item["Type"] for item in template.resources.values()}
    assert not {kind for kind in kinds if kind.startswith(("AWS::Lambda", "Custom::", "AWS::CloudFormation::"))}


def test_the_template_fits_any_account_and_region(template: Template) -> None:
    assert "us-east-1" not in template.text()
    assert "arn:aws:" not in template.text()


def test_whatever_can_be_tagged_is_tagged_with_the_cluster(synthesise: Callable[..., Template]) -> None:
    template = synthesise(name="other")
    for id, item in template.resources.items():
        properties = item.get("Properties", {})
        tags = properties.get("Tags") or properties.get("FileSystemTags")
        if isinstance(tags, list):  # a parameter of Systems Manager has them by key
            tags = {tag["Key"]: tag["Value"] for tag in tags}
        if tags is not None:
            assert tags.get(CLUSTER_TAG) == "other", id


def test_two_clusters_share_no_fixed_name(synthesise: Callable[..., Template]) -> None:
    named = {"BucketName", "RoleName", "GroupName", "AutoScalingGroupName", "LaunchTemplateName", "InstanceProfileName"}
    for id, item in synthesise().resources.items():
        values = item.get("Properties", {})
        assert not [name for name in named & values.keys() if "Ref" not in values[name]], id
