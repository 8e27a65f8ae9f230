"""Master and workers share one runtime: its TensorFlow exists for x86_64, for one Python, and computes on no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.config import ClusterConfig
from stacks.instance_types import find, names
from stacks.validation import Problem, cautions, check, runtime

AL2023 = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"
DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-{}/latest/ami-id"
UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
DEBIAN = "/aws/service/debian/release/{}/latest/amd64"


def build(**values: Any) -> ClusterConfig:
    return ClusterConfig.from_context({"cluster": {"ssh_cidr": "198.18.0.7/32", "login_user": "ops", **values}})


def problems(**values: Any) -> list[Problem]:
    return list(runtime.check(build(**values)))


@pytest.mark.parametrize(
    ("worker", "master", "key"),
    [
        ("c7g.4xlarge", "t4g.medium", "worker_instance_type"),
        ("c7g.4xlarge", "t3.medium", "worker_instance_type"),
        ("c5.2xlarge", "t4g.medium", "master_instance_type"),
        ("g5g.xlarge", "t4g.medium", "worker_instance_type"),
    ],
)
def test_processors_without_a_tensorflow_are_refused_with_both_keys_named(worker: str, master: str, key: str) -> None:
    (problem,) = problems(worker_instance_type=worker, master_instance_type=master)
    assert problem.key == key
    assert f"worker_instance_type = {worker}" in problem.rule
    assert f"master_instance_type = {master}" in problem.rule
    assert "tensorflow-cpu" in problem.rule
    assert "worker_instance_type = c5.2xlarge and master_instance_type = t3.medium" in problem.remedy
    assert problem in list(check(build(worker_instance_type=worker, master_instance_type=master)))


def test_no_arm_type_of_the_table_passes_and_every_x86_64_type_does() -> None:
    for kind in filter(None, map(find, names())):
        found = [problem.key for problem in problems(worker_instance_type=kind.name)]
        assert (found == []) is ("x86_64" in kind.architectures), kind.name


@pytest.mark.parametrize(
    ("image", "refused"), [(AL2023 + "arm64", True), (AL2023 + "x86_64", False), ("/my/own", False)]
)
def test_of_an_unknown_type_the_image_tells_the_processor(image: str, refused: bool) -> None:
    found = problems(worker_instance_type="c99g.large", allow_unknown_instance_types=True, worker_image_parameter=image)
    assert [problem.key for problem in found] == (["worker_instance_type"] if refused else [])


@pytest.mark.parametrize(
    ("master", "worker", "pythons"),
    [
        ("", UBUNTU, ()),
        ("", DLAMI.format("amazon-linux-2023"), ()),
        (UBUNTU, DLAMI.format("ubuntu-24.04"), ()),
        ("/my/own", DEBIAN.format(12), ()),
        (DEBIAN.format(13), DEBIAN.format(13), ()),
        (DEBIAN.format(12), DEBIAN.format(13), ("3.11", "3.13")),
        ("", DEBIAN.format(12), ("3.12", "3.11")),
        (UBUNTU, DEBIAN.format(13), ("3.12", "3.13")),
    ],
)
def test_images_with_two_pythons_are_refused_with_both_keys_named(
    master: str, worker: str, pythons: tuple[str, ...]
) -> None:
    found = problems(master_image_parameter=master, worker_image_parameter=worker)
    assert bool(found) is bool(pythons)
    for problem in found:
        assert f"worker_image_parameter = {worker} brings Python {pythons[1]}" in problem.rule
        assert f"master_image_parameter = {master or AL2023 + 'x86_64'} brings Python {pythons[0]}" in problem.rule


def test_an_image_by_id_tells_nothing_of_its_python() -> None:
    by_id = {"worker_image_id": "ami-0123456789abcdef0", "worker_root_device": "/dev/xvda"}
    assert problems(master_image_parameter=DEBIAN.format(13), **by_id) == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, {}),
        ({"worker_instance_type": "p5.48xlarge"}, {"p5.48xlarge": "the 8 H100 GPUs would lie idle"}),
        (
            {"worker_instance_type": "g5.xlarge", "worker_alternatives": "g5.2xlarge"},
            {"g5.xlarge": "the A10G GPU would lie idle", "g5.2xlarge": "the A10G GPU would lie idle"},
        ),
    ],
)
def test_workers_with_gpus_are_taken_with_a_caution(values: dict[str, str], told: dict[str, str]) -> None:
    config = build(**values)
    assert list(check(config)) == []
    found = list(cautions(config))
    assert {str(caution.value): caution.rule.partition(":")[0] for caution in found} == told
    assert {caution.key for caution in found} <= {"worker_instance_type", "worker_alternatives"}
