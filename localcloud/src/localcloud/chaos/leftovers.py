"""End the faults that a `chaos` left which could undo nothing, as after SIGKILL."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

from localcloud.chaos.attempt import Host, Scene, named
from localcloud.chaos.file_faults import FILLER
from localcloud.chaos.network_faults import Network
from localcloud.chaos.processes import is_stopped, processes_of
from localcloud.errors import LocalCloudError, NotRunningError

Ended = tuple[str, Callable[[], None]]
"""What lasts, and what ends it. Raises LocalCloudError or OSError."""


def end_all(scene: Scene, report: Callable[[str, dict[str, Any]], None]) -> tuple[int, tuple[str, ...]]:
    """End every fault that lasts on a cloud, also one that another command began.

    Returns how many were ended, and what could not be.

    Raises LocalCloudError where the cloud does not answer.
    """
    ended, left = 0, []
    for what, end in _lasting(scene):
        try:
            end()
        except NotRunningError:
            raise
        except (LocalCloudError, OSError) as error:
            left.append(what)
            report(f"not undone: {what}: {error}", {"not_undone": what, "reason": str(error)})
        else:
            ended += 1
            report(f"undone: {what}", {"undone": what})
    scene.ask({"do": "fail"})  # whether calls of the API fail at the moment, nothing tells
    return ended, tuple(left)


def _lasting(scene: Scene) -> Iterator[Ended]:
    """Find what lasts, on one host after the other and then on the disk."""
    for host in scene.all_hosts():
        if host["network"] == "cut":
            yield f"cut {named(host)} off", _mending(scene, host)
        if host["pid"] and not host["agent"]:
            yield from _of_network(host)
            yield from _of_ranks(host)
    filler = scene.shared_file_system() / FILLER
    if filler.exists():
        yield "filled the shared file system", filler.unlink


def _mending(scene: Scene, host: Host) -> Callable[[], None]:
    return lambda: scene.ask({"do": "mend", "instance": host["instance_id"]})


def _of_network(host: Host) -> Iterator[Ended]:
    try:
        opened = Network(host)
    except FileNotFoundError:  # the host has just ended
        return
    with closing(opened) as network:
        if network.has_drop():
            yield f"dropped what {named(host)} sends", network.end_drop
        if network.slowed_links():
            yield f"slowed what {named(host)} sends", network.end_slow


def _of_ranks(host: Host) -> Iterator[Ended]:
    for process in processes_of(host["pid"]):
        if process.rank is not None and is_stopped(process.pid):
            yield f"froze rank {process.rank} on {named(host)}", _going_on(process.pid)


def _going_on(pid: int) -> Callable[[], None]:
    def go_on() -> None:
        with suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(pid, signal.SIGCONT)

    return go_on
