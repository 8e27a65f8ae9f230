"""Which hosts of an elastic run are gone, where their ranks do not ask for a place while others wait for one."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from typing import Final

from agent.launch.elastic.membership import MemberHost
from agent.remote import reachability
from agent.remote.command import execute, remote_command
from agent.spec.nodes import Node

SILENT_S: Final = 3.0
"""How long after the first rank has asked for a place the others' hosts are asked whether they are still there."""
GIVE_UP_S: Final = 180.0
"""How long a rank whose host answers may take to ask for a place; then something keeps it, and the others go on."""
_PROBE_S: Final = 8.0
"""How long a host may take for a login; its kernel answers within 3 s, or is not there."""


def is_there(node: Node, directory: str) -> bool:
    """Return whether a host is still there: first its kernel, which answers in milliseconds, then a login.

    `directory`: the agent's on that host.
    """
    command = remote_command(node, directory, ["true"], as_rank=True)
    return reachability.answers(node) and execute(command, _PROBE_S).status == 0


class SilentHosts:
    """The hosts that are waited for, each of which is asked whether it is there, in a thread of its own."""

    def __init__(self, is_there: Callable[[Node], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_there, self._clock = is_there, clock
        self._since: float | None = None
        self._probes: dict[str, concurrent.futures.Future[bool]] = {}
        """By the host's instance id."""
        self._pool = concurrent.futures.ThreadPoolExecutor(max_workers=16)

    def look(self, silent: Sequence[MemberHost]) -> list[tuple[MemberHost, str]]:
        """Return those of the silent hosts that are to be given up, and why, in words."""
        now = self._clock()
        if not silent:
            self._since, self._probes = None, {}
            return []
        self._since = self._since or now
        if now - self._since < SILENT_S:
            return []
        if now - self._since >= GIVE_UP_S:
            return [(host, f"{host.node.name} did not leave its step") for host in silent]
        return [(host, f"{host.node.name} no longer answers") for host in silent if self._is_gone(host.node)]

    def _is_gone(self, node: Node) -> bool:
        """Return whether a host has been found not to be there; ask it again where it has been found to be."""
        probe = self._probes.get(node.instance_id)
        if probe is not None and probe.done():
            return not self._probes.pop(node.instance_id).result()
        if probe is None:
            self._probes[node.instance_id] = self._pool.submit(self._is_there, node)
        return False

    def end(self) -> None:
        """Ask nothing any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
