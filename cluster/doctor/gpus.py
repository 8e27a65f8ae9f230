"""Check of the workers' GPUs: what a run on them must reach before its ranks start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cluster.doctor.finding import OK, WARN, Finding, Subject
from cluster.runs.gpu_floors import floors
from stacks.gpus import SPEEDS
from stacks.instance_types import find

CHECK: Final = "GPU floors"


def floors_of_types(subject: Subject) -> Iterator[Finding]:
    """Tell for each type of workers with GPUs below which speeds a run is refused; nothing for types without."""
    for name in subject.config.worker_types:
        kind = find(name)
        if kind is None or not kind.gpus:
            continue
        found = floors((name, name), efa=subject.config.efa)
        speed = SPEEDS.get(kind.gpu_name)
        if speed is None:
            what = f"{name}: no published figure of {kind.gpu_name} GPUs is known: their speed is measured, not judged"
            remedy = "compare the figures of the pre-flight on two nodes before a long run"
            yield Finding(check=CHECK, state=WARN, what=what, remedy=remedy)
            continue
        network = (
            f"all GPUs of two nodes add up at {found.allreduce_gb_s:.3g} GB/s or more"
            if found.allreduce_gb_s
            else "the allreduce is measured, not judged, for its slowest link has no published figure"
        )
        what = (
            f"{name}: a run begins where each {kind.gpu_name} multiplies at {found.matmul_tflops:.3g} TFLOP/s or more "
            f"({speed.source}), and {network}; `fab train --allow-degraded` begins below it"
        )
        yield Finding(check=CHECK, state=OK, what=what)
