"""The whole workflow on a cloud with throttling, delays and missing capacity; `make api-faults` runs twenty seeds."""

from __future__ import annotations

import json
import os
from typing import Final

import pytest

from tests.e2e.conftest import start_cloud

SEEDS: Final = tuple(os.environ.get("FAULT_SEEDS", "4").split())
"""Seeds to try. With 4, both zones have room for one instance each."""


@pytest.mark.parametrize("seed", SEEDS)
def test_cluster_is_deployed_trains_and_is_removed_despite_api_faults(seed: str) -> None:
    with start_cloud(f"m{seed}-{os.getpid()}", "--api-faults", seed) as cloud:
        assert json.loads(cloud.localcloud("status", "--json").stdout)["api_faults"] == int(seed)
        cloud.fab("up", "--yes", "--set", "availability_zones=2")  # one zone may lack capacity or the instance type
        shown = cloud.fab("status", "--json").stdout
        for role in ("master", "worker"):
            assert all(instance["InstanceId"] in shown for instance in cloud.instances(role))
        told = cloud.fab("train", "--nodes", "2", "--recipe", "digits", "--epochs", "2", "--yes").stdout
        assert "succeeded" in told
        (run,) = json.loads(cloud.fab("runs", "--json").stdout)
        assert run["state"] == "succeeded"
        assert (cloud.run(run["run_id"]).path / "result.json").exists()
        cloud.fab("down", "--yes")
        stacks = cloud.ask("cloudformation", "list_stacks")["StackSummaries"]
        left = [stack["StackName"] for stack in stacks if stack["StackStatus"] != "DELETE_COMPLETE"]
        assert left == ["CDKToolkit"]
        assert not cloud.instances("master") and not cloud.instances("worker")
