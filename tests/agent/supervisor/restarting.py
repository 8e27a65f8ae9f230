"""Shared by tests of restarts: a run on two hosts, a launcher's log, and partly unreachable hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.remote.ssh import Completed
from agent.runs.run_directory import RunDirectory
from agent.spec.nodes import Node
from agent.spec.run import RunSpec
from tests.factories import make_nodes, make_spec

ONE, TWO = make_nodes(2)
SPEC = make_spec(hosts=(ONE, TWO), restarts=3)
ENDED = "[supervisor] $ launch\n[launcher] rank 1 exited first: {}\n"


def answer(output: str = "812.45 3100.02\n", status: int = 0) -> Completed:
    return Completed(status=status, output=output)


def report_stuck(spec: RunSpec, node: Node, ranks: str, attempt: int = 1) -> None:
    """Write the ranks that a node found stuck."""
    directory = RunDirectory(path=Path(spec.run_directory))
    directory.path.mkdir(parents=True, exist_ok=True)
    directory.stall_report(attempt, node.name).write_text(ranks)


class FakeHosts:
    """Partly unreachable hosts; the set may change with each call."""

    def __init__(self, silent: Sequence[set[str]]) -> None:
        self._silent = list(silent)
        self.asked: list[list[str]] = []

    def reachable(self, hosts: Sequence[Node]) -> list[Node]:
        self.asked.append([host.name for host in hosts])
        silent = self._silent.pop(0) if len(self._silent) > 1 else self._silent[0]
        return [host for host in hosts if host.name not in silent]

    def everywhere(self, hosts: Sequence[Node], argv: Sequence[str], timeout_s: float) -> dict[str, Completed]:
        return {host.name: answer() for host in hosts}
