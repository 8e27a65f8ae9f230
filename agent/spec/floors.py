"""What the GPUs of a run and the network between them must reach at least before its ranks start. Pure."""

from __future__ import annotations

import dataclasses
import math

from agent.errors import SpecError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Floors:
    """Lowest speeds with which a run on GPUs begins; 0: none is known, and the speed is only shown."""

    matmul_tflops: float = 0.0
    """Of one matrix product in half precision on each GPU, TFLOP/s."""
    allreduce_gb_s: float = 0.0
    """Bus bandwidth of an allreduce over all ranks, GB/s, as nccl-tests define it."""
    allreduce_mib: int = 256
    """Size of the tensor that is added up to measure it, MiB."""

    def __post_init__(self) -> None:
        for name in ("matmul_tflops", "allreduce_gb_s"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise SpecError(f"floors: {name} = {value!r}: must be 0 or more")
        if type(self.allreduce_mib) is not int or not 1 <= self.allreduce_mib <= 8192:
            raise SpecError(f"floors: allreduce_mib = {self.allreduce_mib!r}: must be a whole number from 1 to 8192")
