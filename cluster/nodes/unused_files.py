"""List and remove directories that no run needs, on the shared file system and on node disks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.spec.laptop_requests import RemoteCommand
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON, RANK_HOME, Node, workers
from cluster import master_answers as answers
from cluster.aws.stack import Stack
from cluster.ssh import command_on_nodes
from cluster.ssh.master import Master
from cluster.terminal.status_line import doing, warn
from cluster.terminal.tables import Table
from cluster.terminal.units import amount

SHARED: Final = "shared file system"
_ITEMS: Final = answers.each(
    answers.fields(kind=answers.text, path=answers.text, size=answers.whole, used=answers.flag)
)
_SHARED: Final = answers.fields(
    items=_ITEMS,
    names=answers.maybe(answers.each(answers.text)),
    data=answers.maybe(answers.each(answers.text)),
)
_BATCH: Final = 200
"""Number of paths in one command."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leftover:
    """A directory that `fab clean` lists, and removes unless it is `used`."""

    place: str
    """`shared file system`, or a node's name for a directory on its own disk."""
    kind: str
    """What it contains, such as wheels or data."""
    path: str
    size: int
    """Bytes."""
    used: bool = False
    """Whether a run or process needs it, or the next run would upload or build it again."""


class Leftovers:
    """Find directories of uploads, environments and data on the master and the workers, and remove unused ones."""

    def __init__(self, master: Master, stack: Stack, directory: str, shared_agent: str) -> None:
        """Use the agent in `directory` on the master, and in `shared_agent` on the workers."""
        self._master, self._stack, self._directory, self._shared_agent = master, stack, directory, shared_agent

    def shared(self) -> list[Leftover]:
        """Return the used and unused directories on the shared file system, and the master's own agents."""
        return self._of(SHARED, self._ask_master("shared", self._stack.efs_mount))

    def all(self, nodes: Sequence[Node]) -> list[Leftover]:
        """Return the used and unused directories on the shared file system, the master, and any workers in `nodes`.

        A directory counts as used if its node reports it as used, or if a run on the shared file system refers to a
        directory of this name. A worker that fails is left out, after a warning.
        """
        answer = self._ask_master("shared", self._stack.efs_mount)
        names, data = {*(answer.get("names") or ())}, {*(answer.get("data") or ())}
        found = [*self._of(SHARED, answer), *self._of(MASTER_NAME, self._ask_master("node"))]
        if workers(nodes):
            for as_rank, words in self._of_workers():
                for host, listed in self._ask_workers("listed", words, as_rank=as_rank).items():
                    found += self._of(host, listed)
        needed = {True: data, False: names}
        return [
            dataclasses.replace(each, used=each.used or each.path.rpartition("/")[2] in needed[each.kind == "data"])
            for each in found
        ]

    def remove(self, chosen: Iterable[Leftover], nodes: Sequence[Node]) -> list[Leftover]:
        """Remove the directories `chosen`, unless a run has started to need them. Return the removed ones.

        `nodes` must contain the master. Directories of workers that are not in `nodes` are skipped, and so are those of
        workers that fail, after a warning.
        """
        by_place: dict[str, list[Leftover]] = {}
        for each in chosen:
            by_place.setdefault(each.place, []).append(each)
        addresses = {node.name: node.address for node in nodes}
        removed: list[Leftover] = []
        for batch in _batches([each.path for each in by_place.pop(SHARED, [])]):
            removed += self._of(SHARED, self._ask_master("shared", self._stack.efs_mount, *batch))
        for batch in _batches([f"{addresses[MASTER_NAME]}:{each.path}" for each in by_place.pop(MASTER_NAME, [])]):
            removed += self._of(MASTER_NAME, self._ask_master("node", *batch))
        rest = [each for leftovers in by_place.values() for each in leftovers if each.place in addresses]
        for as_rank, words in self._of_workers():
            root = f"{words[1]}/" if as_rank else ""
            paths = [
                f"{addresses[each.place]}:{each.path}"
                for each in rest
                if (each.kind == "data") == as_rank and each.path.startswith(root)
            ]
            for batch in _batches(paths):
                for host, listed in self._ask_workers("removed", (*words, *batch), as_rank=as_rank).items():
                    removed += self._of(host, listed)
        return removed

    def _of_workers(self) -> list[tuple[bool, tuple[str, ...]]]:
        """Return the commands of `agent.supervisor.clean` for workers, each as a pair: whether the ranks' user runs it,
        and its words.
        """
        roots = [f"{RANK_HOME}/data", *([f"{self._stack.scratch_mount}/data"] if self._stack.scratch_mount else [])]
        return [(False, ("node",)), *((True, ("data", root)) for root in roots)]

    def _ask_master(self, *words: str) -> dict[str, Any]:
        """Run `agent.supervisor.clean` with these words on the master, and return its answer: at least `items`."""
        command = [NODE_PYTHON, "-m", "agent.supervisor.clean", *words]
        with doing("measuring what is stored"):
            done = self._master.check(command, directory=self._directory, doing="looking for unused files")
        answer: dict[str, Any] = answers.read(done.text, _SHARED, "`clean`", where=self._master.where)
        return answer

    def _ask_workers(self, done: str, words: Sequence[str], *, as_rank: bool) -> dict[str, dict[str, Any]]:
        """Run `agent.supervisor.clean` on all workers. Return the answers by node, without nodes that failed.

        A warning is printed for each node that failed: its files were not `done`, which is "listed" or "removed".
        `as_rank`: the ranks' user runs the command.
        """
        command = ("env", f"PYTHONPATH={self._shared_agent}", NODE_PYTHON, "-m", "agent.supervisor.clean", *words)
        request = RemoteCommand(command=command, as_rank=as_rank)
        found = {}
        with doing("measuring what is stored on the nodes"):
            results = command_on_nodes.run(self._master, self._directory, request, None)
        for result in results:
            if result.failed:
                node = command_on_nodes.short(result.name)
                warn(f"{node}: unused files were not {done}; to try again, repeat `fab clean`: {result.reason}")
                continue
            text = result.stdout.decode(errors="replace")
            found[result.name] = answers.read(text, answers.fields(items=_ITEMS), "`clean`", where=result.name)
        return found

    def _of(self, place: str, answer: Mapping[str, Any]) -> list[Leftover]:
        return [
            Leftover(place=place, kind=each["kind"], path=each["path"], size=each["size"], used=each["used"])
            for each in answer["items"]
        ]


def _batches(paths: Sequence[str]) -> list[Sequence[str]]:
    return [paths[at : at + _BATCH] for at in range(0, len(paths), _BATCH)]


def unused(found: Iterable[Leftover]) -> list[Leftover]:
    """Return the directories that no run needs, largest first."""
    return sorted((each for each in found if not each.used), key=lambda each: -each.size)


def size_of(found: Iterable[Leftover]) -> int:
    """Return the total size of these directories, bytes."""
    return sum(each.size for each in found)


def table(found: Sequence[Leftover]) -> Table:
    """Build the table of these unused directories, with their total size below."""
    rows = tuple(
        (command_on_nodes.short(each.place), each.kind, amount(each.size), ascii(each.path)[1:-1]) for each in found
    )
    return Table(
        title="not needed by a live, queued or kept run",
        columns=("where", "what", "size", "path"),
        rows=rows,
        footer=(f"total: {amount(size_of(found))}",),
    )


def summary(found: Sequence[Leftover]) -> str:
    """Return one line with the size of each kind of upload on the shared file system, and how much `fab clean` frees.

    `found` is the result of `Leftovers.shared`.
    """
    kinds: dict[str, int] = {}
    for each in found:
        kinds[each.kind] = kinds.get(each.kind, 0) + each.size
    listed = ", ".join(f"{kind} {amount(size)}" for kind, size in sorted(kinds.items(), key=lambda pair: -pair[1]))
    free = size_of(unused(found))
    return f"uploads on the {SHARED}: {listed or 'none'}" + (f"; `fab clean` frees {amount(free)}" if free else "")
