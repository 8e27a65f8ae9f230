"""Known facts about a node's hardware."""

from __future__ import annotations

import pytest

from cluster.errors import UsageError
from cluster.planner.hardware import hardware_of


def test_current_type_has_gpus_links_and_cores() -> None:
    p4d = hardware_of("p4d.24xlarge")
    assert (p4d.gpus, p4d.gpu, p4d.ranks, p4d.network_gbit_s, p4d.nvlink, p4d.efa) == (8, "A100", 8, 400, True, True)
    assert (p4d.vcpus, p4d.cores) == (96, 48)


def test_node_without_gpus_has_one_rank_and_graviton_a_core_for_each_vcpu() -> None:
    assert (hardware_of("c5.2xlarge").ranks, hardware_of("c5.2xlarge").cores) == (1, 4)
    assert hardware_of("c6g.2xlarge").cores == 8


def test_network_with_up_to_is_a_peak_and_text_means_slow() -> None:
    assert (hardware_of("c5.2xlarge").network_gbit_s, hardware_of("c5.2xlarge").network_peak) == (10, True)
    assert hardware_of("c1.medium").network_gbit_s == 0.5


@pytest.mark.parametrize(("name", "nearest"), [("p5.48xlrge", "p5.48xlarge"), ("nonsense", "")])
def test_unknown_type_is_rejected_with_nearest_match(name: str, nearest: str) -> None:
    with pytest.raises(
        UsageError, match=f"--instance = '{name}': not in the table of instance types; did you mean {nearest}"
    ):
        hardware_of(name)
