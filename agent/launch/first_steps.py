"""Horovod's cycle for a program of the user's own, from what its first steps took in an earlier run.

A cycle can be chosen only before the ranks meet: Horovod reads it once, in `hvd.init`, has no call to change it, and
its autotuner, which can, ends a rank that has called `hvd.join` (`GetTensorDataForAutotuner` of 0.28.1 looks up a
tensor that this rank does not have). So rank 0 of each run measures its first steps
(`agent.launch.keras3_guard.deepcdk_first_steps`) and leaves them in its run's directory; from there the supervisor
keeps them on the shared file system, for the runs that follow. Standard library only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.spec.horovod import AUTOTUNE, CYCLE_TIME, cycle_ms
from agent.spec.launchers import HOROVOD
from agent.spec.run import RunSpec

FOLDER: Final = "payloads/.first-steps"
"""Below the shared file system, whose root the login user may not write in."""
MEASURED_FILE: Final = "first-steps.json"
"""In the run's directory, from its rank 0."""
MOST_BYTES: Final = 4096
VARIABLE: Final = "DEEPCDK_FIRST_STEPS"
"""Where rank 0 writes what it has measured."""
ASSUMED_STEP_MS: Final = 25.0
"""For a program that was never measured: two ranks over Gloo get 2.2 ms. By the rule of `cycle_ms` that costs no more
than Horovod's own 1 ms for steps from 10 ms on, and half of it or less for those from 100 ms on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What a program's step took in an earlier run."""

    step_ms: float
    run_id: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cycle:
    """The cycle chosen for a run, and where the time of its own steps goes: from its rank 0, and for later runs."""

    ms: float
    because: str
    measured: Path
    record: Path

    def __str__(self) -> str:
        """Return it in words, for the log and the record."""
        return f"{self.ms:g} ms, for {self.because}"

    @property
    def variables(self) -> dict[str, str]:
        """Return what the launcher hands to all ranks."""
        return {CYCLE_TIME: f"{self.ms:g}", VARIABLE: str(self.measured)}

    def keep(self, run_id: str) -> None:
        """Keep for later runs what rank 0 of this one has measured, if it has. Raises OSError."""
        if found := read_record(self.measured):
            self.record.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.record, json.dumps({"step_ms": found.step_ms, "run": run_id}))


def choose_cycle(spec: RunSpec) -> Cycle | None:
    """Choose a cycle by the steps of an earlier run of these words, or of the same script with others.

    None where Horovod is left as it is: recipes choose by themselves, one rank has none to wait for, on GPUs its thread
    takes no core from the compute, and a cycle or the autotuner that the user chose stays.
    """
    kind = spec.runtime_kind
    if not spec.program or spec.launcher or spec.rank_launcher != HOROVOD or spec.ranks < 2 or (kind and kind.has_gpus):
        return None
    given = {*dict(spec.environment), *spec.secrets}
    if spec.knobs.cycle_time_ms is not None or spec.knobs.autotune or given & {CYCLE_TIME, AUTOTUNE}:
        return None
    found = _find(spec)
    step = found.step_ms if found else ASSUMED_STEP_MS
    because = f"steps of {step:g} ms, " + (f"measured in run {found.run_id}" if found else "assumed: none was measured")
    return Cycle(
        ms=cycle_ms(step, spec.ranks, spec.controller),
        because=because,
        measured=Path(spec.run_directory) / MEASURED_FILE,
        record=record_path(spec),
    )


def record_path(spec: RunSpec) -> Path:
    """Return the file of a program's steps: one for the same script, words, number of ranks and controller."""
    same = _digest([spec.command, spec.ranks, spec.controller])
    return Path(spec.efs_mount) / FOLDER / _digest([spec.recipe]) / f"{same}.json"


def read_record(path: Path) -> Measured | None:
    """Return what was measured; None where nothing was, or the file is not one of these."""
    try:
        # A rank has written it: never through a link, and no more than such a file has.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            document = json.loads(file.read(MOST_BYTES))
        step_ms, run_id = float(document["step_ms"]), str(document["run"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return Measured(step_ms=step_ms, run_id=run_id) if math.isfinite(step_ms) and step_ms > 0 else None


def _find(spec: RunSpec) -> Measured | None:
    exact = record_path(spec)
    return next(filter(None, map(read_record, (exact, *_newest_first(exact.parent)))), None)


def _newest_first(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
