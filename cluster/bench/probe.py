"""The benchmark by which `fab plan --calibrate` learns the speed of a cluster: few cells, in about two minutes."""

from __future__ import annotations

from typing import Final

from payload.settings import Settings
from payload.settings.bench import BenchSettings

SMALL_BYTES: Final = 1 << 10
LARGE_BYTES: Final = 1 << 26
"""The two messages that tell the latency of a link from its bandwidth, 1 KiB and 64 MiB."""
ROUNDS: Final = 3


def probe_settings(settings: Settings, workers: int) -> BenchSettings:
    """Return the cells for a recipe on so many workers: its network on one node and on all, and two allreduces on all.

    One worker has no link.
    """
    workers = max(1, workers)
    batch = settings.global_batch // workers if settings.global_batch else settings.batch_per_rank
    return BenchSettings(
        nodes=(1, workers) if workers > 1 else (1,),
        networks=(settings.network,),
        precisions=(settings.precision,),
        batch_sizes=(max(1, batch),),
        message_bytes=(SMALL_BYTES, LARGE_BYTES) if workers > 1 else (),
        repeats=ROUNDS,
    )
