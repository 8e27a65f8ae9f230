"""The default measurements of `fab bench`."""

from __future__ import annotations

import pytest

from cluster.errors import UsageError
from cluster.tasks.bench import BenchFlags, powers_up_to
from payload.settings.bench import BenchSettings


@pytest.mark.parametrize(
    ("workers", "nodes"),
    [(0, "1"), (1, "1"), (2, "1,2"), (3, "1,2,3"), (4, "1,2,4"), (6, "1,2,4,6"), (16, "1,2,4,8,16")],
)
def test_default_doubles_nodes_up_to_all_running_ones(workers: int, nodes: str) -> None:
    assert powers_up_to(workers) == nodes


def test_empty_values_are_defaults_of_benchmark() -> None:
    assert BenchFlags().settings("1,2") == BenchSettings(nodes=(1, 2))
    assert BenchFlags(networks="vgg16", repeats="3").settings("1") == BenchSettings(networks=("vgg16",), repeats=3)


def test_invalid_number_is_reported_with_flag() -> None:
    with pytest.raises(UsageError, match=r"--steps = .?0.?: must be 1 to 10000"):
        BenchFlags(steps="0").settings("1")
