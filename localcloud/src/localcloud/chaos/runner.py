"""Runs a schedule of faults on a running cloud, and repairs temporary faults in time or at the end."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from localcloud.chaos.attempt import Attempt, Cloud, NoTargetError, Patterns
from localcloud.chaos.faults import carry_out
from localcloud.chaos.file_faults import creation_check
from localcloud.chaos.schedule import WHILE_WRITING, Fault
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError, NotRunningError

MAX_WAIT_S: Final = 60.0
"""Maximum time that a fault waits for a program to write, in seconds."""
LOOK_S: Final = 0.002
"""Interval of checks for writing, in seconds. A small network's checkpoint is written within 20 ms."""
Report = Callable[[str, dict[str, Any]], None]
"""Takes a description of an event and its JSON values. Raises LocalCloudError if it cannot store them."""


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Prevent other `chaos` commands on the same cloud within a block.

    Raises LocalCloudError if one is running, or NotRunningError if the cloud is not.
    """
    try:
        opened = layout.chaos_lock.open("a+", encoding="utf-8")
    except FileNotFoundError:
        raise NotRunningError(layout.name) from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise LocalCloudError(
                f"another `chaos` runs on the embedded cloud {layout.name}; wait until it exits, or stop it with: "
                f"kill {file.read()}"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@dataclasses.dataclass(kw_only=True)
class Pending:
    """An active temporary fault and the time of its repair."""

    at_s: float
    kind: str
    target: str
    what: str
    undo: Callable[[], object]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a schedule."""

    done: int
    """Number of injected faults."""
    left: tuple[str, ...]
    """Descriptions of the faults that could not be repaired."""
    interrupted: bool


def run(
    cloud: Cloud,
    schedule: Sequence[Fault],
    patterns: Patterns,
    report: Report,
    *,
    clock: Callable[[], float] = time.monotonic,
    interrupted: Callable[[float], bool],
) -> Outcome:
    """Inject the faults at their times. Temporary faults are repaired in time, and at the end even after an error.

    A fault without a target, or whose injection fails, is reported and skipped. `interrupted` waits for the given
    seconds, and returns True immediately if the schedule must stop. Raises NotRunningError if the cloud stops first,
    and the errors of `report`.
    """
    began, done = clock(), 0
    pending: list[Pending] = []

    def end(one: Pending) -> None:
        """Repair one fault and report it. If the repair fails, it is tried again at the end of the schedule."""
        reason = ""
        try:
            one.undo()
        except NotRunningError:
            pass  # the fault disappeared with the cloud
        except (LocalCloudError, OSError) as error:
            reason = str(error)
        if reason:
            one.at_s = math.inf
            report(f"not undone: {one.what}: {reason}", {"not_undone": one.what, "reason": reason})
        else:
            pending.remove(one)
            report(f"undone: {one.what}", {"undone": one.what})

    def wait(until_s: float) -> bool:
        """Wait until a time of the schedule and repair faults that are due; return False if interrupted."""
        while True:
            now = clock() - began
            for one in [one for one in pending if one.at_s <= now]:
                end(one)
            now = clock() - began
            if now >= until_s:
                return True
            if interrupted(max(0.0, min([until_s, *(one.at_s for one in pending)]) - now)):
                return False

    def wait_for_writing() -> bool:
        """Wait until a program starts to write; return False if interrupted. Raises NoTargetError if none does."""
        has_begun = creation_check(cloud.shared_file_system(), patterns.writing)
        until_s = clock() - began + MAX_WAIT_S
        while not has_begun():
            if clock() - began >= until_s:
                raise NoTargetError(
                    f"no file that matches --writing {patterns.writing!r} was created within {MAX_WAIT_S:g} s"
                )
            if not wait(clock() - began + LOOK_S):
                return False
        return True

    def attempt(fault: Fault) -> bool:
        busy = {one.target for one in pending if one.kind == fault.kind}
        try:
            found = carry_out(Attempt(cloud=cloud, fault=fault, patterns=patterns, busy=busy))
        except NotRunningError:
            raise
        except LocalCloudError as error:
            missed(fault, error)
            return False
        if found.undo:
            end_s = clock() - began + fault.lasts_s
            pending.append(Pending(at_s=end_s, kind=fault.kind, target=found.target, what=found.what, undo=found.undo))
        report(found.what, {**fault.document(), "what": found.what})
        return True

    def missed(fault: Fault, error: LocalCloudError) -> None:
        word = "skipped" if isinstance(error, NoTargetError) else "failed"
        report(f"{fault.kind} {word}: {error}", {**fault.document(), word: str(error)})

    going = True
    try:
        for fault in sorted(schedule, key=lambda one: one.at_s):
            going = wait(fault.at_s)
            if going and fault.kind in WHILE_WRITING and patterns.writing:
                try:
                    going = wait_for_writing()
                except NoTargetError as error:
                    missed(fault, error)
                    continue
            if not going:
                break
            done += attempt(fault)
        if going:
            ends = [one.at_s for one in pending if one.at_s != math.inf]
            going = wait(max(ends, default=0.0))
    finally:
        for one in list(pending):
            # If the record is full or the terminal closed, `end` raises. Repair the other faults anyway.
            with contextlib.suppress(LocalCloudError, OSError):
                end(one)
    return Outcome(done=done, left=tuple(one.what for one in pending), interrupted=not going)


def line(at_s: float, values: dict[str, Any]) -> str:
    """Return a line of the record, a JSON object: `elapsed_s`, `time` and the values.

    `elapsed_s` is `at_s`, the seconds since the start. `time` is the current time in seconds since 1970.
    """
    return json.dumps({"elapsed_s": round(at_s, 1), "time": round(time.time(), 3), **values}) + "\n"
