"""How a run uses its machines. Results do not depend on it, except for the last bits of sums."""

from __future__ import annotations

import dataclasses

from payload.settings.rules import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class MachineSettings:
    """Choose threads and placement; defaults follow from the topology (`agent.hardware.topology`)."""

    intra_op_threads: int = setting(0, "threads within one operation; 0: the rank's physical cores", low=0, high=1024)
    inter_op_threads: int = setting(
        0, "operations at a time; 0: by the network's branches and the cores", low=0, high=1024
    )
    placement: str = setting("auto", "bind each rank to its cores and memory, or to none", choices=("auto", "none"))
