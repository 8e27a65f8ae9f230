"""The search for hosts that join an elastic run in place of lost ones, beside its steps.

A host is claimed, freed of what the run may have left there, prepared with environment and secrets, and checked, before
it is offered to the launcher. So the others do not wait for any of this.
"""

from __future__ import annotations

import dataclasses
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from agent.launch.horovodrun_command import Interpreters
from agent.launch.hosts import Hosts
from agent.preflight import checks
from agent.runs.directory import RunDirectory
from agent.runs.store import LiveRunError
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from agent.supervisor.attempts import preparation
from agent.supervisor.attempts.preparation import PreparationError
from agent.supervisor.elastic.elastic_run import ElasticRun
from agent.supervisor.restart import Restarts

EVERY_S: Final = 10.0
"""Time between two searches."""


@dataclasses.dataclass(kw_only=True)
class Joining:
    """The search for one run, in a thread of its own while hosts are missing."""

    run: ElasticRun
    restarts: Callable[[RunSpec], Restarts]
    """Returns the search for hosts with which a spec's run would be restarted: by the same rules they join."""
    hosts_of: Callable[[RunSpec], Hosts]
    directory: RunDirectory
    pythons: Interpreters
    wanted: int
    take_spec: Callable[[RunSpec], None]
    """Stores the spec of a run that has further hosts."""
    log_line: Callable[[str], None]
    every_s: float = EVERY_S
    _thread: threading.Thread | None = None
    _ended: threading.Event = dataclasses.field(default_factory=threading.Event)

    def look(self, spec: RunSpec) -> None:
        """Search where hosts are missing, unless a search is under way."""
        if len(self.run.offered) >= self.wanted or (self._thread is not None and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._search, args=(spec,), name="joining", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the search; one that is under way offers nothing any more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=self.every_s)

    def _search(self, spec: RunSpec) -> None:
        if self._ended.wait(self.every_s):
            return
        try:
            self._join(spec)
        except (OSError, RuntimeError, ValueError) as error:
            self.log_line(f"no host joins: {error}")

    def _join(self, spec: RunSpec) -> None:
        """Bring in as many hosts as are missing and found. Raises OSError, RuntimeError and ValueError."""
        offered = self.run.offered
        restarts, missing = self.restarts(spec), self.wanted - len(offered)
        # Those that were refused before come last.
        ever, still = self.run.refused(), self.run.refused(at=time.monotonic())
        found = restarts.joining(offered, ever, missing)
        if not found and still != ever:
            found = restarts.joining(offered, still, missing)
        if not found or self._ended.is_set():
            return
        names = ", ".join(node.name for node in found)
        self.log_line(f"{names} can join: preparing")
        wider = with_hosts(spec, found)
        own = dataclasses.replace(wider, hosts=found)
        try:
            restarts.claim([*wider.hosts])
        except LiveRunError:
            return
        self.take_spec(wider)
        hosts = self.hosts_of(own)
        hosts.signal_run(signal.SIGKILL, wait_s=5.0, hosts=found)  # What a host that was cut off still has of it.
        try:
            self._prepare(own, hosts)
        except (OSError, RuntimeError, ValueError) as error:
            # One that failed keeps the others back this time alone, if it is known which one.
            failures = error.failures if isinstance(error, PreparationError) else {}
            failed = [host.instance_id for host in found if host.name in failures]
            self.run.refuse(failed or [host.instance_id for host in found])
            raise
        if not self._ended.is_set():
            self.log_line(f"{names}: prepared, and offered to the launcher")
            self.run.offer(found)

    def _prepare(self, spec: RunSpec, hosts: Hosts) -> None:
        """Prepare and check these hosts alone. Raises PreparationError."""
        pythons, answers = preparation.prepare(spec, hosts, is_stopped=self._ended.is_set)
        if self._ended.is_set():
            return
        if pythons.ranks != self.pythons.ranks:
            raise PreparationError({host.name: f"the ranks' Python is {pythons.ranks}" for host in spec.hosts})
        if spec.preflight != "skip":
            digest = hashlib.sha256(self.directory.spec.read_bytes()).hexdigest()
            report, _ = checks.judge(spec, checks.with_facts(answers), digest)
            if report.findings and not spec.allow_degraded:
                raise PreparationError({each.node: f"{each.check}: {each.what}" for each in report.findings})


def with_hosts(spec: RunSpec, nodes: Sequence[Node]) -> RunSpec:
    """Return the spec with further hosts; one that has taken a lost host's name stands in its place."""
    new = {node.name: dataclasses.replace(node, slots=spec.hosts[0].slots) for node in nodes}
    replaced = [new.pop(host.name, host) for host in spec.hosts]
    return dataclasses.replace(spec, hosts=(*replaced, *new.values()))
