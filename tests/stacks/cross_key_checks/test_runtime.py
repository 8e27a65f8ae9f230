"""The workers of a run share one environment, which needs a TensorFlow build; the master has a separate environment."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.cross_key_checks import Problem, cautions, check, runtime
from stacks.instance_types import find, names

AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"


def build(**values: Any) -> ClusterConfig:
    return ClusterConfig.from_context({"cluster": {"ssh_cidr": "198.18.0.7/32", "login_user": "ops", **values}})


def problems(**values: Any) -> list[Problem]:
    return list(runtime.check(build(**values)))


def test_every_type_is_accepted_except_arm64_gpus_and_macs() -> None:
    for kind in filter(None, map(find, names())):
        found = [problem.key for problem in problems(worker_instance_type=kind.name)]
        arm = "x86_64" not in kind.architectures
        refused = arm and (kind.gpus > 0 or "arm64" not in kind.architectures)
        assert found == (["worker_instance_type"] if refused else []), kind.name


@pytest.mark.parametrize("master", ["t3.medium", "t4g.medium"])
@pytest.mark.parametrize("worker", ["c5.2xlarge", "c7g.4xlarge", "g5.xlarge"])
def test_master_of_either_processor_works_with_all_workers(master: str, worker: str) -> None:
    config = build(worker_instance_type=worker, master_instance_type=master)
    assert list(check(config)) == []


def test_arm64_gpus_are_rejected_with_alternative() -> None:
    (problem,) = problems(worker_instance_type="g5g.xlarge", master_instance_type="t4g.medium")
    assert (problem.key, problem.value) == ("worker_instance_type", "g5g.xlarge")
    assert "g5g.xlarge has GPUs with arm64 processors, and TensorFlow has no build for them" in problem.rule
    assert "g4dn, g5, g6" in problem.remedy


@pytest.mark.parametrize(("image", "cautioned"), [(AL2023 + "arm64", True), (AL2023 + "x86_64", False)])
def test_processor_of_unknown_type_is_taken_from_image(image: str, cautioned: bool) -> None:
    values = {"worker_instance_type": "c99g.large", "allow_unknown_instance_types": True}
    assert problems(**values, worker_image_parameter=image) == []
    assert bool(list(runtime.cautions(build(**values, worker_image_parameter=image)))) is cautioned


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, {}),
        ({"worker_instance_type": "p5.48xlarge"}, {"p5.48xlarge": "the runtime for the 8 H100 GPUs"}),
        (
            {"worker_instance_type": "g5.xlarge", "worker_alternatives": "g5.2xlarge"},
            {"g5.xlarge": "the runtime for the A10G GPU", "g5.2xlarge": "the runtime for the A10G GPU"},
        ),
        ({"worker_instance_type": "c7g.4xlarge"}, {"c7g.4xlarge": "the packages for arm64 processors are locked"}),
        (
            {"worker_instance_type": "p3dn.24xlarge", "worker_image_parameter": "/my/own"},
            {"p3dn.24xlarge": "V100 is older than Turing, which the runtime's cuDNN 9.28 requires"},
        ),
    ],
)
def test_untested_configuration_is_accepted_with_warning(values: dict[str, str], told: dict[str, str]) -> None:
    config = build(**values)
    assert list(check(config)) == []
    found = list(cautions(config))
    assert [str(caution.value) for caution in found] == list(told)
    assert all(caution.rule.startswith(told[str(caution.value)]) for caution in found)
    assert {caution.key for caution in found} <= {"worker_instance_type", "worker_alternatives"}
