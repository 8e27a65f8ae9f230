"""Detect lost workers and workers with a faulty GPU while runs are live or queued, and let their group replace them.

The scheduler checks the workers in a thread. A worker answers if it is in the master's list of nodes and responds over
SSH. The list contains only nodes that can write to the shared file system. Some nodes are never replaced: nodes that
have not joined yet (they are booting), nodes with a termination notice, nodes that a task such as `fab replace` or
`fab scale` holds, and nodes that are not in service in the group. If more than half of the workers do not answer, none
of these is replaced, because the fault is probably on the master's side.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agent.errors import SpecError, describe
from agent.hardware import gpu_health
from agent.hardware.gpus import TIMEOUT_S
from agent.preflight.report import replace_remedy
from agent.remote.ssh import Completed, execute, remote_command
from agent.runs import run_queue, trusted_spec
from agent.runs.node_claims import Runs
from agent.spec.node_kinds import NodeKind
from agent.spec.nodes import LEAVING, NODES_PATH, Node, workers
from agent.spec.run import RunSpec
from agent.spec.run_limits import Replacements
from agent.supervisor.free_nodes import read_nodes
from agent.supervisor.worker_replacement import AwsCallError, Execute, Replacement, ReplacementLog, WorkerGroup

PERIOD_S: Final = 20.0
LOST_S: Final = 180.0
"""A worker is lost after this time without an answer."""
BOOT_S: Final = 900.0
"""The same for a worker that has removed itself from the list of nodes, for example at a reboot."""
ASK: Final = ("true",)
ASK_TIMEOUT_S: Final = 60.0
"""SSH tries to connect for 15 s. A healthy worker with busy processors may take longer to answer."""
CALL_S: Final = 60.0
"""Minimum seconds between two calls of AWS while a worker is lost."""
MAX_PARALLEL: Final = 64


@dataclasses.dataclass(kw_only=True)
class Seen:
    """A worker that has joined the cluster, with the results of the last checks. Times are on the monotonic clock."""

    node: Node
    answered: float
    """When it last answered, or was first seen."""
    is_listed: bool = True
    replied: bool = True
    left: bool = False
    """Whether the worker removed itself from the list of nodes: it had still answered at the check before."""
    gpu_trouble: str = ""
    faulty: str = ""
    """The fault of its GPUs, if two consecutive checks found one; otherwise ""."""

    def observe(self, now: float, *, is_listed: bool, replied: bool, gpu_trouble: str = "") -> None:
        """Store the result of a check at the time `now`.

        `is_listed`: the worker is in the master's list of nodes. `replied`: it ran the check. `gpu_trouble` is the
        fault that the check found in its GPUs, or "". The worker is faulty after two consecutive checks with a fault.
        """
        if replied:
            self.answered, self.left = now, False
            self.faulty = gpu_trouble if self.gpu_trouble else ""
            self.gpu_trouble = gpu_trouble
        elif self.is_listed and self.replied and not is_listed:
            self.left = True
        self.is_listed, self.replied = is_listed, replied

    def trouble(self, now: float) -> str:
        """Return why the worker must be replaced at the time `now`; "" if it must not.

        The reason is a fault of its GPUs, or no answer for LOST_S. The limit is BOOT_S for a worker that removed itself
        from the list, because it may be rebooting.
        """
        if self.replied:
            return self.faulty
        silent_s = now - self.answered
        if silent_s < (BOOT_S if self.left else LOST_S):
            return ""
        return f"it has not answered for {silent_s / 60:.0f} min"


class LostWorkers:
    """Check all workers repeatedly, and let their group replace lost and faulty ones."""

    def __init__(
        self,
        runs: Runs,
        log_line: Callable[[str], None],
        *,
        run: Execute = execute,
        nodes_path: str = NODES_PATH,
        log: ReplacementLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs, self._run, self._nodes_path, self._clock = runs, run, nodes_path, clock
        self._log_line = functools.lru_cache(maxsize=256)(log_line)  # Log a lasting problem once, not at each check.
        self._log = log or ReplacementLog()
        self._seen: dict[str, Seen] = {}
        self._reported: set[tuple[str, str]] = set()
        """Instance id and trouble of the workers that could not be replaced."""
        self._next_call = 0.0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Check the workers, and replace lost and faulty ones, every PERIOD_S seconds during a block, in a thread.

        An error is logged, and the checks continue.
        """
        ended = threading.Event()
        threading.Thread(target=self._keep_looking, args=(ended,), daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    def _keep_looking(self, ended: threading.Event) -> None:
        while not ended.wait(PERIOD_S):
            try:
                self.check_and_replace()
            except (OSError, RuntimeError, ValueError) as error:  # The next check may succeed.
                self._log_line(f"cannot check the workers: {describe(error)}; trying again in {PERIOD_S:g} s")

    def check_and_replace(self) -> None:
        """Check all workers once, and replace lost and faulty workers, within the limits. Raises OSError.

        Do nothing unless the settings of a live or queued run allow replacements. If AWS does not list the group's
        members, log this, and replace nothing.
        """
        specs = self._specs()
        settings = next((spec.replacements for spec in reversed(specs) if spec.replacements.group), Replacements())
        if not settings:
            return
        self._observe(workers(read_nodes(self._log_line, self._nodes_path)), [*self._hosts_of_live_runs(specs)])
        now = self._clock()
        if not any(seen.trouble(now) for seen in self._seen.values()) or now < self._next_call:
            return
        self._next_call = now + CALL_S
        group = WorkerGroup(settings=settings, run=self._run)
        try:
            members = group.members()
        except AwsCallError as error:
            self._log_line(f"cannot replace lost workers: {error}; trying again in {CALL_S:g} s")
            return
        self._seen = {id: seen for id, seen in self._seen.items() if members.get(id)}
        self._replace(group, {id: why for id, seen in self._seen.items() if (why := seen.trouble(now))})

    def _specs(self) -> list[RunSpec]:
        """Return the specs of the live runs, and then of the queued runs. Specs that cannot be read are left out."""
        found = []
        for run_id in (*self._runs.live(), *run_queue.ids()):
            with contextlib.suppress(OSError, SpecError):
                found.append(trusted_spec.read(run_id))
        return found

    def _hosts_of_live_runs(self, specs: Sequence[RunSpec]) -> Iterator[Node]:
        """Yield the hosts of live runs. They have joined the cluster, even if this scheduler has never seen them."""
        live = self._runs.live()
        for spec in specs:
            if spec.run_id in live:
                yield from spec.hosts

    def _observe(self, listed: Sequence[Node], hosts: Sequence[Node]) -> None:
        asked = self._ask(listed)
        now, listed_ids = self._clock(), {node.instance_id for node in listed}
        tasks = [claim for claim in self._runs.held() if claim.task]
        for node in (*listed, *hosts):
            first = Seen(node=node, answered=now, is_listed=node.instance_id in listed_ids)
            self._seen.setdefault(node.instance_id, first)
        for id, seen in list(self._seen.items()):
            if any(claim.has(seen.node) for claim in tasks):
                seen.answered = now
            if (self._runs.root.parent / LEAVING / id).exists():
                del self._seen[id]
                continue
            done = asked.get(id)
            replied = done is not None and done.status == 0
            trouble = self._gpu_trouble(seen.node, done) if done and replied else ""
            seen.observe(now, is_listed=id in listed_ids, replied=replied, gpu_trouble=trouble)

    def _ask(self, nodes: Sequence[Node]) -> dict[str, Completed]:
        """Check each node over SSH, on nodes with GPUs also these; return the results by instance id."""

        def ask(node: Node) -> Completed:
            has_gpus = NodeKind.parse(node.kind).has_gpus
            command = remote_command(node, "/", gpu_health.COMMAND if has_gpus else ASK)
            return self._run(command, ASK_TIMEOUT_S + TIMEOUT_S * has_gpus)

        with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, min(MAX_PARALLEL, len(nodes)))) as pool:
            return dict(zip([node.instance_id for node in nodes], pool.map(ask, nodes), strict=True))

    def _gpu_trouble(self, node: Node, done: Completed) -> str:
        if not NodeKind.parse(node.kind).has_gpus:
            return ""
        try:
            return gpu_health.parse(done.output, node.slots)
        except ValueError as error:
            self._log_line(f"{node.name}: {error}; trying again in {PERIOD_S:g} s")
            return ""

    def _replace(self, group: WorkerGroup, reasons: dict[str, str]) -> None:
        """Mark workers as unhealthy, so that their group replaces them.

        `reasons` are the workers' faults by instance id. Each replacement is recorded, or why it is impossible. No
        worker is marked above the hourly limit. If more than half of the workers do not answer, none of these is
        marked. Raises OSError.
        """
        silent, known = sum(not seen.replied for seen in self._seen.values()), len(self._seen)
        for id, reason in reasons.items():
            node, most = self._seen[id].node, group.settings.max_per_hour
            trouble = ""
            if 2 * silent > known and not self._seen[id].replied:
                trouble = (
                    f"{silent} of {known} workers do not respond, so the cause is probably the master's "
                    "network or the shared file system"
                )
            elif self._log.made(time.time()) >= most:
                reached = f"the limit max_replacements_per_hour = {most} is reached"
                trouble = f"{reached}; to replace it now: {replace_remedy(node.name)}"
            else:
                try:
                    group.mark_unhealthy(node)
                except AwsCallError as error:
                    trouble = str(error)
                    if "AccessDenied" in trouble:
                        trouble += "; to grant the master this permission: `fab up`"
            self._record(node, reason, trouble)
            if not trouble:
                del self._seen[id]

    def _record(self, node: Node, reason: str, trouble: str) -> None:
        """Log a replacement and add it to the log of replacements. `reason` is the worker's fault.

        `trouble` is why the replacement failed, or "". The same trouble of a worker is recorded only once.
        """
        if trouble and (node.instance_id, trouble) in self._reported:
            return
        self._reported.add((node.instance_id, trouble))
        made = Replacement(
            time=time.time(), node=node.name, instance_id=node.instance_id, reason=reason, trouble=trouble
        )
        self._log_line(str(made))
        self._log.add(made)
