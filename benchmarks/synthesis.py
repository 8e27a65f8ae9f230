"""Time how long the CDK takes to synthesise the template of each example cluster, in its CLI and in this process."""

from __future__ import annotations

import functools
import tempfile
import time

from benchmarks.measure import Measure, seconds
from tests.stacks.clusters.eight import CLUSTERS, Cluster
from tests.stacks.clusters.synthesis import synthesise


def measures() -> list[Measure]:
    """Return the measurements: a whole `cdk synth`, and a second synthesis in the same process."""
    by_the_cli = [
        Measure(
            name=f"cdk synth, warm: {name}", unit="s", promise=10, take=functools.partial(_cli, cluster), warm_up=True
        )
        for name, cluster in CLUSTERS.items()
    ]
    in_process = [
        Measure(
            name=f"synth in process: {name}", unit="s", promise=1, take=functools.partial(_again, cluster), warm_up=True
        )
        for name, cluster in CLUSTERS.items()
    ]
    return [*by_the_cli, *in_process]


def _cli(cluster: Cluster) -> float:
    with tempfile.TemporaryDirectory() as directory:
        return seconds(["cdk", "synth", "--quiet", *cluster.words, "--output", directory])


def _again(cluster: Cluster) -> float:
    began = time.monotonic()
    synthesise(cluster.config())
    return time.monotonic() - began
