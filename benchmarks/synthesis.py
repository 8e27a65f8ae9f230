"""Time how long the CDK takes to synthesise the template of each example cluster, in its CLI and in one process."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
from typing import Final

from benchmarks.measure import Measure, output_of, seconds
from tests.stacks.clusters.eight import CLUSTERS, Cluster

AGAIN: Final = """
import sys, time
from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.synthesis import synthesise
config = CLUSTERS[sys.argv[1]].config()
synthesise(config)
began = time.monotonic()
synthesise(config)
print("seconds:", time.monotonic() - began)
"""
"""Synthesises a cluster twice, and prints how long the second time took. CDK prints warnings between other lines."""


def measures() -> list[Measure]:
    """Return the measurements: a whole `cdk synth`, and a second synthesis in the same process."""
    by_the_cli = [
        Measure(
            name=f"cdk synth, warm: {name}", unit="s", promise=10, take=functools.partial(_cli, cluster), warm_up=True
        )
        for name, cluster in CLUSTERS.items()
    ]
    in_process = [
        Measure(name=f"synth in process: {name}", unit="s", promise=1, take=functools.partial(again, name))
        for name in CLUSTERS
    ]
    return [*by_the_cli, *in_process]


def _cli(cluster: Cluster) -> float:
    with tempfile.TemporaryDirectory() as directory:
        return seconds(["cdk", "synth", "--quiet", *cluster.words, "--output", directory])


def again(name: str) -> float:
    """Return the wall time, s, of a second synthesis of this cluster. The output of the first one is not shown."""
    output = output_of([sys.executable, "-c", AGAIN, name])
    return float(re.findall(r"^seconds: (.*)$", output, re.MULTILINE)[-1])
