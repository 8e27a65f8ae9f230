"""Carry out a schedule of faults on a cloud that runs, and undo at the end what would last."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import ipaddress
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from localcloud import control, lifecycle
from localcloud.chaos.attempt import Attempt, NoTargetError, Patterns, Scene
from localcloud.chaos.faults import carry_out
from localcloud.chaos.file_faults import beginning
from localcloud.chaos.schedule import WHILE_WRITING, Fault
from localcloud.errors import LocalCloudError, NotRunningError
from localcloud.laptop import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from localcloud.layout import Layout
from localcloud.network.namespaces import enter_path

LONGEST_WAIT_S: Final = 60.0
"""How long a fault waits for a program to write, s."""
LOOK_S: Final = 0.002
"""How often it looks meanwhile, s: the checkpoint of a small network is written within 20 ms."""
Report = Callable[[str, dict[str, Any]], None]
"""Takes what happened in words, and as JSON values. Raises LocalCloudError where it cannot keep them."""


class ReplacedError(NotRunningError):
    """Report that a cloud has ended, and that another of its name was started."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.args = (f"the embedded cloud {name} that the faults were for has ended; another of its name was started",)


class Cloud:
    """A cloud that runs, reached as its own command line reaches it."""

    def __init__(self, layout: Layout, only: str = "") -> None:
        """Meet hosts whose name or id `only` matches, a regular expression. Raises NotRunningError."""
        self._layout, self._only = layout, only
        self._state = lifecycle.read_state(layout)

    def hosts(self, only: str = "") -> list[dict[str, Any]]:
        """Return the hosts that a fault may meet, by name and address: an instance's id says not even its age."""
        only = only or self._only
        found = [host for host in self.all_hosts() if re.search(only, f"{host['name']} {host['instance_id']}")]
        return sorted(found, key=lambda host: (host["name"], ipaddress.ip_address(host["private_ip"])))

    def all_hosts(self) -> list[dict[str, Any]]:
        """Return the cloud's hosts. Raises NotRunningError, LocalCloudError where it does not answer."""
        hosts: list[dict[str, Any]] = self._request({"do": "status"})["hosts"]
        return hosts

    def ask(self, message: dict[str, str]) -> None:
        """Send a request to the daemon. Raises NotRunningError, LocalCloudError."""
        self._request(message)

    def _request(self, message: dict[str, str]) -> dict[str, Any]:
        """Send a request. Raises NotRunningError also for a later cloud of the same name."""
        if lifecycle.read_state(self._layout)["started"] != self._state["started"]:
            raise ReplacedError(self._layout.name)
        return control.request(self._layout, message)

    def call(self, operation: str, instance_id: str) -> None:
        """Call an operation of EC2 for one instance, from the laptop. Raises LocalCloudError."""
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError

        def inside() -> None:
            session: Any = boto3.Session(ACCESS_KEY_ID, SECRET_ACCESS_KEY, region_name=self._state["region"])
            client = session.client("ec2", endpoint_url=self._state["endpoint"])
            getattr(client, operation)(InstanceIds=[instance_id])

        try:
            enter_path(self._state["namespaces"]["laptop"]["path"], inside)
        except (BotoCoreError, ClientError) as error:
            raise LocalCloudError(f"{operation} of {instance_id}: {error}") from error

    def shared_file_system(self) -> Path:
        """Return where the shared file systems are in the daemon's mounts."""
        return Path(f"/proc/{self._state['pid']}/root{self._layout.efs}")


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Let no other `chaos` meet a cloud meanwhile, which would undo what this one does. Raises LocalCloudError."""
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
                f"chaos already runs on the embedded cloud {layout.name}, as process {file.read()}; "
                "wait for its end, or end it by SIGTERM"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pending:
    """A fault that lasts, and when it is to be undone."""

    at_s: float
    kind: str
    target: str
    what: str
    undo: Callable[[], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a schedule."""

    done: int
    """Faults that were carried out."""
    left: tuple[str, ...]
    """What could not be undone."""
    interrupted: bool


def run(
    scene: Scene,
    schedule: Sequence[Fault],
    patterns: Patterns,
    report: Report,
    *,
    clock: Callable[[], float] = time.monotonic,
    interrupted: Callable[[float], bool],
) -> Outcome:
    """Carry out the faults in turn. What lasts is undone in time, and at the end also after an error.

    A fault for which there is nothing at the moment, or which fails, is reported and passed over. `interrupted`: waits
    for so many seconds, and returns True as soon as the schedule is to end. Raises NotRunningError where the cloud has
    ended before the schedule.
    """
    began, done = clock(), 0
    pending: list[Pending] = []

    def wait(until_s: float) -> bool:
        """Wait until a time of the schedule, and undo meanwhile what is due; return whether to go on."""
        while True:
            now = clock() - began
            for one in [one for one in pending if one.at_s <= now]:
                pending.remove(one)
                reason = _undo(one)
                if reason:  # it is tried once more at the end
                    pending.append(dataclasses.replace(one, at_s=math.inf))
                _report_end(one, reason, report)
            now = clock() - began
            if now >= until_s:
                return True
            if interrupted(max(0.0, min([until_s, *(one.at_s for one in pending)]) - now)):
                return False

    def wait_for_writing() -> bool:
        """Wait until a program begins to write; return whether to go on. Raises NoTargetError where none does."""
        has_begun = beginning(scene.shared_file_system(), patterns.writing)
        until_s = clock() - began + LONGEST_WAIT_S
        while not has_begun():
            if clock() - began >= until_s:
                raise NoTargetError(f"nothing like {patterns.writing!r} began within {LONGEST_WAIT_S:g} s")
            if not wait(clock() - began + LOOK_S):
                return False
        return True

    def attempt(fault: Fault) -> bool:
        busy = {one.target for one in pending if one.kind == fault.kind}
        try:
            found = carry_out(Attempt(scene=scene, fault=fault, patterns=patterns, busy=busy))
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
        left = _undo_all(pending, report)
    return Outcome(done=done, left=left, interrupted=not going)


def line(at_s: float, values: dict[str, Any]) -> str:
    """Return one line of the record."""
    return json.dumps({"elapsed_s": round(at_s, 1), "time": round(time.time(), 3), **values}) + "\n"


def _undo(one: Pending) -> str:
    """Undo one fault; return why that cannot be, or nothing."""
    try:
        one.undo()
    except NotRunningError:  # what it was done to ended with the cloud
        return ""
    except (LocalCloudError, OSError) as error:
        return str(error)
    return ""


def _report_end(one: Pending, reason: str, report: Report) -> None:
    if reason:
        report(f"not undone: {one.what}: {reason}", {"not_undone": one.what, "reason": reason})
    else:
        report(f"undone: {one.what}", {"undone": one.what})


def _undo_all(pending: Sequence[Pending], report: Report) -> tuple[str, ...]:
    """Undo what still lasts; return what could not be undone."""
    left = []
    for one in pending:
        reason = _undo(one)
        if reason:
            left.append(one.what)
        # The record may be full or the terminal gone, which has ended the schedule: the others are undone all the same.
        with contextlib.suppress(LocalCloudError, OSError):
            _report_end(one, reason, report)
    return tuple(left)
