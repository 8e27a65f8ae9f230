"""The benchmark by which `fab plan --calibrate` learns the speed of a cluster: few cells, in about two minutes."""

from __future__ import annotations

from typing import Final

from cluster.planner.networks import NETWORKS
from cluster.planner.workload import Workload
from payload.settings.bench import BenchSettings

SMALL_BYTES: Final = 1 << 10
LARGE_BYTES: Final = 1 << 26
"""The two messages that tell the latency of a link from its bandwidth, 1 KiB and 64 MiB."""
ROUNDS: Final = 3


def probe_settings(workload: Workload, *, workers: int, ranks: int) -> BenchSettings:
    """Return the cells for a workload on so many workers: its network on one node and on all, two allreduces on all.

    Images and batch of a rank are those of the phase that computes the longest on all `ranks`. One worker has no link.
    Raises SettingError for a workload that a benchmark cannot have, such as too large a batch.
    """
    workers = max(1, workers)
    longest = max(workload.phases, key=lambda phase: phase.epochs * phase.size**2)  # each has the same images an epoch
    published = NETWORKS[workload.network].image_size
    return BenchSettings(
        nodes=(1, workers) if workers > 1 else (1,),
        networks=(workload.network,),
        precisions=(workload.precision,),
        batch_sizes=(max(1, longest.global_batch // ranks),),
        # Published images need not be square: 0 leaves them their shape.
        image_size=longest.size if longest.size != published else 0,
        message_bytes=(SMALL_BYTES, LARGE_BYTES) if workers > 1 else (),
        input_size=0,
        storage_mib=0,
        repeats=ROUNDS,
    )
