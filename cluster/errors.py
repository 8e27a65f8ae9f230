"""Errors of the tasks. Each has what was wrong, where, and what to do."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Final

_OF_OUTPUT: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
MAX_SHOWN: Final = 300
"""Maximum number of characters of an invalid value in a message."""


class DeepcdkError(Exception):
    """Report an error that ends a task: what was wrong, and, unless "", where it was and what to do.

    Only the tasks convert it to a message and an exit status.
    """

    exit_status = 1

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(what)

    def __str__(self) -> str:
        """Return the message: one line each for what was wrong, where, and what to do."""
        lines = [
            self.what,
            f"  where: {self.where}" if self.where else "",
            f"  do: {self.remedy}" if self.remedy else "",
        ]
        return "\n".join(line for line in lines if line)


class UsageError(DeepcdkError, ValueError):
    """Report an invalid argument of a task. The value is not shown if it is None."""

    def __init__(self, name: str, value: object, rule: str) -> None:
        self.name, self.value, self.rule = name, value, rule
        super().__init__(f"{name}: {rule}" if value is None else f"{name} = {_shown(value)}: {rule}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text):,} characters)"


class SystemRefusedError(DeepcdkError):
    """Report an operation that the operating system rejected, such as writing to a full disk or an unreadable file."""

    def __init__(self, error: OSError) -> None:
        self.errno, reason = error.errno, error.strerror or str(error)
        what, remedy = f"the operating system reports: {reason}", "fix this cause, then repeat the command"
        if error.filename is not None:
            fix = "free some space there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "check this path"
            what, remedy = f"cannot use {error.filename}: {reason}", f"{fix}, then repeat the command"
        elif error.errno in _OF_OUTPUT:
            what, remedy = f"the output cannot be written: {reason}", "free some space, or write the output elsewhere"
        super().__init__(what, remedy=remedy)


class AwsError(DeepcdkError, OSError):
    """Report that AWS was not reachable, or rejected a request."""


class NoAnswerError(AwsError):
    """Report that the AWS API was not reachable or did not answer."""


class NoStackError(DeepcdkError, LookupError):
    """Report that the cluster is not deployed in this account and region."""

    def __init__(self, name: str, region: str) -> None:
        self.name, self.region = name, region
        super().__init__(
            f"stack {name} is not deployed",
            where=f"region {region}",
            remedy="deploy it with `fab up`. If it is deployed elsewhere, set AWS_REGION or AWS_PROFILE, or give "
            "--set name=NAME",
        )


class ConnectionFailedError(DeepcdkError, ConnectionError):
    """Report that the master was not reachable, or did not prove its identity."""


class RemoteError(DeepcdkError, RuntimeError):
    """Report a command that failed on the master, with its exit status. The message is `what`, followed by the output.

    Without `remedy`, the message advises to fix what the output shows and to repeat the command.
    """

    def __init__(self, what: str, *, status: int, output: str, where: str = "", remedy: str = "") -> None:
        self.status, self.output, shown = status, output, output.strip()
        fix = "fix the cause that this output shows, then repeat the command" if shown else "repeat the command"
        super().__init__(f"{what}\n{shown}" if shown else what, where=where, remedy=remedy or fix)

    def reworded(self, what: str) -> RemoteError:
        """Return the same error with another description, with the same status, output, place and remedy."""
        return RemoteError(what, status=self.status, output=self.output, where=self.where, remedy=self.remedy)


class NotReadyError(DeepcdkError, TimeoutError):
    """Report nodes that did not become ready. `consoles` maps the name of each to its last console lines."""

    def __init__(self, what: str, consoles: Mapping[str, str], *, remedy: str) -> None:
        self.consoles = dict(consoles)
        tails = [
            f"  {node}:\n" + "\n".join(f"    {line}" for line in text.splitlines())
            for node, text in self.consoles.items()
        ]
        super().__init__("\n".join([what, *tails]), remedy=remedy)


class HeldNodesError(DeepcdkError):
    """Report nodes that a task on another machine is about to terminate, or a group that it is resizing."""

    def __init__(self, held: Mapping[str, str]) -> None:
        """`held` maps the name of each task to what it is doing."""
        self.held = dict(held)
        super().__init__(
            "; ".join(f"`{task}` on another machine is {doing}" for task, doing in held.items()),
            remedy="wait until that task is done (`fab status` shows the nodes), then repeat the command",
        )


class LiveRunError(DeepcdkError):
    """Report that another run is live, or waits in the queue."""

    def __init__(
        self, run_id: str, *, queued: bool = False, hosts: Mapping[str, Sequence[str]] | None = None, size: int = 0
    ) -> None:
        """`run_id` is the run to name in the message: one that is live, or with `queued` one that waits in the queue.

        `hosts` maps each live run's id to the names of its nodes. `size` is a sufficient number of workers for a run to
        launch, or 0. If it is 0 and `queued` is not set, nothing is launched, so that --queue is no remedy.
        """
        self.run_id, self.queued, self.hosts, self.size = run_id, queued, dict(hosts or {}), size
        lines = [
            f"run {live} is live" + (f" on {', '.join(names)}" if names else "") for live, names in self.hosts.items()
        ]
        if queued:
            lines.append(f"run {run_id} is queued, and no other run starts before it")
        elif size:
            lines.append("too few nodes are free for another run")
        elif not self.hosts:
            lines.append(f"run {run_id} is live")
        watch, stop = f"watch it with `fab attach --run {run_id}`", f"or stop it with `fab stop --run {run_id}`"
        grow = f", add nodes with `fab scale {size}`" if size else ""
        wait = f"wait your turn with --queue{grow}, {watch}, {stop}"
        super().__init__(
            "; ".join(lines),
            remedy=wait if queued or size else f"wait for its end ({watch}), {stop}; then repeat the command",
        )
