"""Automatic restarts of a run: decide whether a machine fault caused the failure, and choose hosts to continue on.

A machine fault may disappear on another node or at another attempt. Examples are a node that leaves, rebooted or no
longer answers, a lost connection, a rank that was killed, for example for lack of memory, and a stuck rank. An
exception, a usage error or a failed check is the program's own error. It would repeat, so the run is not restarted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import SpecError
from agent.launch.out_of_memory import KILLED
from agent.launch.run_hosts import Hosts
from agent.remote.ssh import Completed
from agent.runs.node_claims import LiveRunError, Runs
from agent.spec.nodes import LEAVING, NODES_PATH, Node
from agent.spec.resumed_spec import resumed_spec
from agent.spec.run import RunSpec
from agent.supervisor import failure, launcher_messages
from agent.supervisor.free_nodes import choose_answering, read_nodes
from agent.supervisor.worker_replacement import HostReplacements

ASK: Final = ("cat", "/proc/uptime")
ASK_TIMEOUT_S: Final = 20.0
"""Longer than SSH's own time-out for a connection."""
PATIENCE_S: Final = 900.0
"""Maximum wait for nodes in place of lost ones. EC2 needs two to five minutes to detect a broken instance, and the same
time to launch and boot another one."""
FEWER_AFTER_S: Final = 180.0
"""Wait for the original number of nodes before a run continues on fewer (`--min-nodes`)."""
UNREPLACED_AFTER_S: Final = 300.0
"""The same wait if no replacement of a lost node comes."""
POLL_S: Final = 5.0
MEMORY_AFTER: Final = "out_of_memory_after_s"
"""Field of a restart in the run's record."""
SIMILAR: Final = 0.25
SIMILAR_S: Final = 20.0
"""Two attempts ended at a similar point if their times differ by at most the share SIMILAR, or by SIMILAR_S seconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one attempt of a run ended."""

    state: str
    """succeeded, stopped or failed."""
    reason: str = ""
    exit_code: int | None = None
    fault: str = ""
    """The machine fault, as text; "" if there was none."""
    memory_after_s: float | None = None
    """Seconds from the launch until a rank ran out of memory, or perhaps did; None if none did."""

    def without_repeated_fault(self, earlier: Collection[Mapping[str, Any]]) -> Outcome:
        """Return this outcome, but without its fault if it repeats an earlier lack of memory.

        It repeats one if a rank ran out of memory about as long after the launch as in an earlier attempt. The run is
        then not restarted; the reason explains this and gives advice. `earlier` contains the restarts in the run's
        timeline.
        """
        now = self.memory_after_s
        times = [float(each[MEMORY_AFTER]) for each in earlier if isinstance(each.get(MEMORY_AFTER), int | float)]
        if now is None or not any(abs(now - then) <= max(SIMILAR_S, SIMILAR * max(now, then)) for then in times):
            return self
        again = (
            f"{self.reason}. An earlier attempt failed in the same way at a similar point, so the run is not restarted"
        )
        return dataclasses.replace(
            self, fault="", reason=f"{again}; do: use less memory per rank, or a larger instance type"
        )


def describe_restart(number: int, most: int, fault: str) -> str:
    """Return the number of a restart, the maximum `most`, and the fault, as text: `restart 1 of 3, because ...`."""
    return f"restart {number} of {most}, because {fault}"


def ask_uptimes(hosts: Hosts, nodes: Sequence[Node]) -> dict[str, float]:
    """Ask nodes for their uptimes; return these in seconds by name, without the nodes that do not answer."""
    return uptimes(hosts.everywhere(hosts.reachable(nodes), ASK, ASK_TIMEOUT_S))


def uptimes(answers: Mapping[str, Completed]) -> dict[str, float]:
    """Parse nodes' outputs of `cat /proc/uptime`; return the uptimes in seconds by name.

    Failed commands and malformed outputs are left out.
    """
    found = {}
    for name, done in answers.items():
        words = done.output.split()
        if done.status == 0 and len(words) >= 2:  # behind a banner, if any
            try:
                found[name] = float(words[-2])
            except ValueError:
                continue
    return found


def machine_fault(spec: RunSpec, log: str, up: Mapping[str, float], ran_s: float) -> str:
    """Return the fault that caused a launcher's failure and that a restart may avoid; "" if none is known.

    Examples are a host that leaves, rebooted or does not respond, a rank that is stuck, was killed or ran out of
    memory, and a lost connection.

    `log` is the end of the launcher's output. `up` contains the `uptimes` of its hosts after the failure. `ran_s` is
    the time that the launcher ran, in seconds.
    """
    if leaving := failure.leaving_hosts(spec):
        return leaving
    if silent := [host.name for host in spec.hosts if host.name not in up]:
        return f"{', '.join(silent)} no longer respond{'' if silent[1:] else 's'}"
    if rebooted := [host.name for host in spec.hosts if up[host.name] < ran_s]:
        return f"{', '.join(rebooted)} rebooted"
    if stuck := failure.stuck_ranks(spec):
        return stuck
    log = launcher_messages.last_attempt(log)
    if memory := failure.out_of_memory(spec.hosts, log):
        return memory
    if killed := failure.killed_ranks(spec.hosts, log, up):
        return killed
    if failure.missing_ranks(spec.hosts, log):  # if none is missing, the program's collectives do not match
        return failure.unreported_ranks(spec.hosts, log)
    if lost := failure.lost_connection(spec.hosts, log) or failure.lost_network(spec.hosts, log):
        return lost
    first = launcher_messages.first_ended(log)
    return failure.first_ended_rank(spec.hosts, log) if first and first[1] in KILLED else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restarts:
    """The search for hosts to restart a run on."""

    spec: RunSpec
    """The spec of the attempt that has just ended."""
    wanted: int
    """Number of hosts that the run started with."""
    hosts: Hosts
    silent: Collection[str]
    """Instance ids of hosts that did not answer a moment ago. The first check leaves them out."""
    runs: Runs
    is_stopped: Callable[[], bool]
    set_reason: Callable[[str], None]
    log_line: Callable[[str], None]
    nodes_path: str = NODES_PATH
    patience_s: float = PATIENCE_S
    fewer_after_s: float = FEWER_AFTER_S
    unreplaced_after_s: float = UNREPLACED_AFTER_S
    poll_s: float = POLL_S
    replacements: HostReplacements | None = None

    def claim_hosts(self, title: str) -> RunSpec | None:
        """Wait for hosts and claim them; return the spec for the restart.

        `title` describes the restart in the state and the log. Return None if too few hosts answer within `patience_s`,
        if the run is stopped, or if the spec cannot be placed on the hosts. The time begins again when a host is
        replaced. Raises RuntimeError if the run's claim was deleted.
        """
        began = time.monotonic()
        self.log_line(title)
        left_out = self.silent
        while not self.is_stopped():
            waited = time.monotonic() - began
            least = self._least(waited)
            answering, nodes = self._answering(left_out)
            hosts = choose_answering(self.spec, nodes, answering, least, self.wanted)
            if hosts is not None and self._claim(hosts):
                return self._on(nodes, hosts)
            if waited >= self.patience_s and time.time() - self._replaced_at() >= self.patience_s:
                few = f"fewer than {least} nodes responded within {waited:.0f} s"
                self.log_line(f"the run is not restarted: {few}; to continue: `fab resume {self.spec.run_id}`")
                return None
            there = f"{len(answering)} of {self.wanted} nodes respond"
            left_out = ()
            self.set_reason(f"{title}: waiting for nodes, {there}")
            time.sleep(self.poll_s)
        return None

    def _least(self, waited_s: float) -> int:
        """Return the minimum number of hosts to continue on after waiting `waited_s` seconds.

        This is the number that the run started with. With --min-nodes, it is that minimum after `fewer_after_s`.
        Otherwise it is 1 if AWS cannot replace lost workers after `unreplaced_after_s`, and this is logged.
        """
        if self.spec.min_nodes:
            return min(self.spec.min_nodes, self.wanted) if waited_s >= self.fewer_after_s else self.wanted
        if waited_s < self.unreplaced_after_s or not self.replacements:
            return self.wanted
        if obstacle := self.replacements.obstacle():
            self.log_line(f"the run may continue on fewer nodes, because its workers are not replaced: {obstacle}")
            return 1
        return self.wanted

    def _replaced_at(self) -> float:
        """Return when the group last began to replace a host, in seconds since 1970; 0 if it never did."""
        return self.replacements.latest() if self.replacements else 0.0

    def _answering(self, left_out: Collection[str]) -> tuple[set[str], tuple[Node, ...]]:
        """Return the instance ids of the workers that can be used, and all nodes in the master's list of nodes.

        A worker can be used if it answers, has no termination notice, and no other run holds it. `left_out` contains
        instance ids that are not asked. If the list cannot be read, this is logged, and both results are empty.
        """
        try:
            nodes = read_nodes(self.log_line, self.nodes_path)
        except OSError as error:
            what = f"cannot read the list of nodes, {self.nodes_path}: {error.strerror or error}"
            self.log_line(f"{what}; trying again in {self.poll_s:g} s")
            return set(), ()
        held = [claim for claim in self.runs.held() if claim.run_id != self.spec.run_id]
        there = [
            node
            for node in nodes
            if node.worker_index is not None
            and node.instance_id not in left_out
            and not any(claim.has(node) for claim in held)
            and not (Path(self.spec.efs_mount) / LEAVING / node.instance_id).exists()
        ]
        found = ask_uptimes(self.hosts, there)
        return {node.instance_id for node in there if node.name in found}, nodes

    def _claim(self, hosts: Sequence[Node]) -> bool:
        """Claim these hosts instead of the previous ones; return True. False if another run claimed one meanwhile."""
        try:
            self.runs.move(self.spec.run_id, hosts)
        except LiveRunError:
            return False
        return True

    def _on(self, nodes: Sequence[Node], hosts: Sequence[Node]) -> RunSpec | None:
        """Return the spec on these hosts, or None if it does not fit, which is logged.

        `nodes` are all nodes in the master's list. Hosts of the last attempt keep their number of ranks. New hosts get
        as many as the first host had.
        """
        slots = {host.instance_id: host.slots for host in self.spec.hosts}
        usual = self.spec.hosts[0].slots
        placed = [dataclasses.replace(host, slots=slots.get(host.instance_id, usual)) for host in hosts]
        together = [*(node for node in nodes if node.worker_index is None), *placed]
        try:
            return resumed_spec(self.spec, together, placed, agent=self.spec.agent, other_ranks=True)
        except SpecError as error:
            self.log_line(f"the run cannot be restarted: {error}")
            return None
