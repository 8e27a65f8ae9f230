"""The GPUs of instance types."""

from __future__ import annotations

from stacks.gpus import CAPABILITIES, capability, common_capability
from stacks.instance_types import find, names


def test_every_nvidia_gpu_of_the_table_has_a_compute_capability() -> None:
    found = {kind.gpu_name for name in names() if (kind := find(name)) and kind.gpu_maker == "NVIDIA"}
    assert found <= CAPABILITIES.keys()
    assert len(found) >= 10


def test_type_has_compute_capability_of_its_gpus() -> None:
    assert [capability(name) for name in ("g4dn.xlarge", "p4d.24xlarge", "p5.48xlarge")] == [75, 80, 90]
    assert [capability(name) for name in ("c5.2xlarge", "p99.huge")] == [None, None]


def test_compute_capability_is_known_only_if_equal_for_all_types() -> None:
    assert common_capability(["p5.48xlarge", "p5e.48xlarge"]) == "90"
    assert common_capability(["p5.48xlarge", "p4d.24xlarge"]) == ""
    assert common_capability(["p5.48xlarge", "p99.huge"]) == ""
    assert common_capability(["c5.2xlarge"]) == ""
