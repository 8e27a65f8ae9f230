"""Whole clusters that people ask for: each is valid, and its template says so in all that sets it apart."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.validation import check
from tests.stacks.conftest import PROJECT, SSH_CIDR
from tests.stacks.template import Template

AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"
DEEP_LEARNING = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    values: dict[str, Any]
    image: str
    interfaces: int = 1
    placed: bool = False
    workers: int = 2
    gpus: bool = False
    regions: tuple[str, ...] = ("us-east-1", "us-west-2", "eu-west-1")


CASES = {
    "default CPU": Case(values={}, image=AL2023 + "x86_64"),
    # Today's AWS offers no p3.16xlarge and its image of today no driver for it: both must be said.
    "16 x p3.16xlarge": Case(
        values={
            "workers": 16,
            "worker_instance_type": "p3.16xlarge",
            "allow_unknown_instance_types": True,
            "worker_image_parameter": "/my/images/volta",
            "placement_group": True,
        },
        image="/my/images/volta",
        placed=True,
        workers=16,
        gpus=True,
    ),
    "p5 with EFA": Case(
        values={"worker_instance_type": "p5.48xlarge", "efa": True},
        image=DEEP_LEARNING,
        interfaces=33,
        placed=True,
        gpus=True,
        regions=("us-east-1", "us-west-2"),
    ),
    "spot beside on-demand": Case(
        values={"worker_instance_type": "g5.xlarge", "spot": True, "on_demand_workers": 1, "workers": 4},
        image=DEEP_LEARNING,
        workers=4,
        gpus=True,
    ),
    "Graviton CPU": Case(
        values={"worker_instance_type": "c7g.4xlarge", "master_instance_type": "t4g.medium"}, image=AL2023 + "arm64"
    ),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def test_it_is_valid(case: Case) -> None:
    assert list(check(ClusterConfig(ssh_cidr=SSH_CIDR, **case.values))) == []


def test_its_workers_are_what_was_asked_for(case: Case, synthesise: Callable[..., Template]) -> None:
    template = synthesise(**case.values)
    data = template.template_of("WorkerGroup")
    assert data["InstanceType"] == case.values.get("worker_instance_type", "c5.2xlarge")
    assert template.document["Parameters"][data["ImageId"]["Ref"]]["Default"] == case.image
    assert template.resources["WorkerGroup"]["Properties"]["DesiredCapacity"] == str(case.workers)
    assert len(data["NetworkInterfaces"]) == case.interfaces
    assert ("Placement" in data) == case.placed
    assert (f"export DEEPCDK_GPUS={str(case.gpus).lower()}\n") in template.user_data("WorkerGroup")
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert all(mapping["Ebs"]["Encrypted"] for mapping in data["BlockDeviceMappings"])
    assert not any(interface.get("AssociatePublicIpAddress") for interface in data["NetworkInterfaces"])


def test_its_workers_are_reached_from_the_master_and_each_other_alone(
    case: Case, synthesise: Callable[..., Template]
) -> None:
    template = synthesise(**case.values)
    nat = template.only("AWS::EC2::NatGateway")
    assert {template.default_route(subnet) for subnet in template.subnets_of("WorkerGroup")} == {nat}
    workers, master = template.group_behind("Each other and the master"), template.group_behind("SSH from ssh_cidr")
    assert {rule[2] for rule in template.rules() if rule[:2] == ("in", workers)} == {workers, master}


@pytest.mark.parametrize(
    "name", ["16 x p3.16xlarge", "p5 with EFA", "spot beside on-demand"]
)  # the others differ from the default in texts
def test_cfn_lint_finds_nothing_but_that_p3_is_gone(name: str, synthesise: Callable[..., Template]) -> None:
    from cfnlint.api import ManualArgs, lint

    case = CASES[name]
    matches = lint(synthesise(**case.values).text(), config=ManualArgs(regions=list(case.regions)))
    # E3628: an instance type that a region does not offer.
    expected = {"E3628"} if "allow_unknown_instance_types" in case.values else set()
    assert {match.rule.id for match in matches} <= expected, [str(match) for match in matches]


def test_the_graviton_master_has_an_image_for_its_processor(synthesise: Callable[..., Template]) -> None:
    template = synthesise(**CASES["Graviton CPU"].values)
    parameter = template.document["Parameters"][template.template_of("MasterGroup")["ImageId"]["Ref"]]
    assert parameter["Default"] == AL2023 + "arm64"


def test_the_documented_cluster_of_p3_is_valid_and_cfn_lint_finds_nothing(synthesise: Callable[..., Template]) -> None:
    from cfnlint.api import ManualArgs, lint

    (block,) = re.findall(r"```json\n(.*?)```", (PROJECT / "docs" / "compute.md").read_text("utf-8"), flags=re.DOTALL)
    values = json.loads(block)
    assert list(check(ClusterConfig(ssh_cidr=SSH_CIDR, **values))) == []
    template = synthesise(**values)
    group = template.resources["WorkerGroup"]
    assert group["Properties"]["DesiredCapacity"] == "16"
    assert template.template_of("WorkerGroup")["InstanceType"] == "p3.16xlarge"
    assert "export DEEPCDK_GPUS=true\n" in template.user_data("WorkerGroup")
    regions = ["us-east-1", "us-west-2", "eu-west-1"]
    assert [str(match) for match in lint(template.text(), config=ManualArgs(regions=regions))] == []
