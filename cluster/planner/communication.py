"""The time of an allreduce, and how much of it a step waits for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

BACKWARD: Final = 2 / 3
"""Part of a step's computation that the backward pass takes: two of three passes of equal work."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ring:
    """Ranks on nodes, and the links between them, as plain numbers."""

    nodes: int
    ranks_per_node: int
    between_bytes_s: float
    between_hop_s: float
    within_bytes_s: float
    within_hop_s: float

    def seconds(self, size: float) -> float:
        """Return the time to allreduce so many bytes in one ring through all ranks.

        Each rank sends 2 (n - 1) / n times the size in 2 (n - 1) messages, at the pace of the slowest link (Patarasuk
        and Yuan 2009).
        """
        ranks = self.nodes * self.ranks_per_node
        if ranks == 1:
            return 0.0
        slowest = self.between_bytes_s if self.nodes > 1 else self.within_bytes_s
        hop = self.between_hop_s if self.nodes > 1 else self.within_hop_s
        return 2 * (ranks - 1) * (size / ranks / slowest + hop)

    def hierarchical_seconds(self, size: float) -> float:
        """Return the time where each node adds up by itself first: rings of one rank a node carry a part each.

        Between N nodes travel 2 (N - 1) / N times the gradients, in as many messages as there are nodes, not ranks.
        """
        local = dataclasses.replace(self, nodes=1)
        across = dataclasses.replace(self, ranks_per_node=1)
        return local.seconds(size) + across.seconds(size)


def exposed_seconds(
    ready: Sequence[tuple[float, float]],
    compute_s: float,
    size: float,
    ring: Ring,
    *,
    fusion_bytes: float,
    cycle_s: float,
    hierarchical: bool = False,
) -> float:
    """Return how long a step goes on after its computation, when gradients travel while others are computed.

    `ready`: of each gradient when it is there and its size, as parts of the backward pass and of all gradients. At each
    cycle Horovod takes what is ready and reduces it, up to its buffer at once, one buffer after the other.
    """
    reduce = ring.hierarchical_seconds if hierarchical else ring.seconds
    backward, free, at = BACKWARD * compute_s, 0.0, 0
    moments = [(moment * backward, part * size) for moment, part in ready]
    while at < len(moments):
        # The next cycle begins when there is something to do and the last buffer is gone.
        start = max(free, moments[at][0])
        start = -(-start // cycle_s) * cycle_s if cycle_s else start
        taken = 0.0
        while at < len(moments) and moments[at][0] <= start + 1e-12:
            if taken and taken + moments[at][1] > fusion_bytes:
                break
            taken += moments[at][1]
            at += 1
        free = start + reduce(taken)
    return max(0.0, free - backward)


def grouped_seconds(
    size: float, ring: Ring, *, fusion_bytes: float, cycle_s: float, hierarchical: bool = False
) -> float:
    """Return how long the reduction takes where all gradients go as one group after the backward pass."""
    if ring.nodes * ring.ranks_per_node == 1:
        return 0.0
    reduce = ring.hierarchical_seconds if hierarchical else ring.seconds
    whole, rest = divmod(size, fusion_bytes)
    return cycle_s / 2 + int(whole) * reduce(fusion_bytes) + (reduce(rest) if rest else 0.0)
