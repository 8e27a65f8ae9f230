"""Call Horovod: all communication between ranks is in this module.

Each function marked "collective" must be called by all ranks, in the same order. If a rank omits a call, the others
wait for it.

With Keras 3 and Horovod 0.28, `hvd.DistributedOptimizer` and `fit` silently skip averaging, and Horovod supports
TensorFlow's variables but not Keras's. Gradients are therefore taken with respect to TensorFlow's variables and summed
in the graph here. `require_agreement` compares the weights.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import horovod
import horovod.tensorflow as hvd
import numpy.typing as npt
import tensorflow as tf
from horovod.common.exceptions import HorovodInternalError

from agent.errors import ReportedError
from agent.hardware.machine import describe_unresolved_name
from agent.spec.horovod import GLOO

T = TypeVar("T")
_LOST: Final = re.compile(
    r"Horovod has been shut down|[Cc]onnection (?:closed|reset|refused)[^\n.]*|Timed out waiting[^\n.]*|"
    r"Broken pipe|(?:Gloo|NCCL)[^\n]*(?:abort|timed? ?out|closed)[^\n.]*"
)
"""Matches the errors that Horovod, Gloo and NCCL raise on a healthy rank when another rank is lost."""


class RanksDisagreeError(ReportedError, RuntimeError):
    """Ranks have different weights or data. `ranks`: the ranks outside the majority."""

    def __init__(self, what: str, ranks: Sequence[int], message: str) -> None:
        self.what, self.ranks = what, tuple(ranks)
        super().__init__(message)


class RankFailedError(ReportedError, RuntimeError):
    """Other ranks failed; raised on the healthy ranks. `messages`: the errors by rank."""

    def __init__(self, messages: dict[int, str]) -> None:
        self.messages = messages
        super().__init__("; ".join(messages.values()))


class RankLostError(ReportedError, ConnectionError):
    """Another rank can no longer be reached; raised on a healthy rank. `reason`: Horovod's message."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"a rank exited or its host is lost: {reason}. See the last lines of that rank or of the launcher in the "
            "log (`fab logs`); status 137 means killed, usually because memory ran out. To continue from the last "
            "checkpoint: `fab resume`, or repeat the command with --resume"
        )


class UnresolvedNameError(ReportedError, OSError):
    """This machine's host name does not resolve, so Gloo would crash the process in hvd.init()."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranks:
    """The rank of this process, and the number of ranks."""

    rank: int
    size: int
    local_rank: int
    """Rank among the ranks of this host."""
    local_size: int
    """Number of ranks on this host."""
    hosts: tuple[str, ...] = ()
    """Host name of each rank, by rank."""

    @property
    def is_root(self) -> bool:
        """Return whether this is rank 0, which writes files, prints and broadcasts."""
        return self.rank == 0


_subsets: dict[int, Any] = {}
"""Horovod's process sets of the first ranks, keyed by number of ranks."""
_taking_part: list[Any] = []
"""The process sets of the active `first_ranks` blocks."""


def join(subsets: Sequence[int] = ()) -> Ranks:
    """Initialize Horovod and join the other ranks (collective). Without horovodrun there is one rank.

    `subsets`: the values of `count` for later calls to `first_ranks`, each less than the number of ranks. The result
    has no host names (see `with_hosts`). Raises UnresolvedNameError if Gloo would crash because of this host's name.
    """
    if os.environ.get("HOROVOD_CONTROLLER") == GLOO and (reason := describe_unresolved_name()):
        raise UnresolvedNameError(reason)
    _subsets.update({count: hvd.ProcessSet(range(count)) for count in subsets})
    hvd.init(process_sets=list(_subsets.values()))
    return Ranks(rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank(), local_size=hvd.local_size())


@contextlib.contextmanager
def first_ranks(count: int) -> Iterator[None]:
    """Limit sums in graphs to the first `count` ranks, in a block that only these ranks enter.

    `count` is the number of all ranks, or was passed to `join`; otherwise this raises KeyError.
    """
    _taking_part.append(hvd.global_process_set if count == hvd.size() else _subsets[count])
    try:
        yield
    finally:
        _taking_part.pop()


def _process_set() -> Any:
    return _taking_part[-1] if _taking_part else hvd.global_process_set


def leave() -> None:
    """Shut Horovod down on this rank. No rank can communicate with it afterwards."""
    hvd.shutdown()


def version() -> str:
    """Return Horovod's version."""
    return str(horovod.__version__)


def with_hosts(ranks: Ranks, host: str | None) -> Ranks:
    """Return `ranks` with the host names of all ranks (collective). `host`: this rank's; None: the system's name."""
    return dataclasses.replace(ranks, hosts=gather_values(host or socket.gethostname(), name="hosts"))


def broadcast_variables(variables: Sequence[Any], *, source: int = 0) -> None:
    """Copy TensorFlow variables from rank `source` to all ranks (collective)."""
    hvd.broadcast_variables(list(variables), root_rank=source)


def broadcast_value(value: T, *, name: str, source: int = 0) -> T:
    """Return the pickled value of rank `source` on all ranks (collective). All ranks must pass the same `name`."""
    received: T = hvd.broadcast_object(value, root_rank=source, name=name)
    return received


def gather_values(value: T, *, name: str) -> tuple[T, ...]:
    """Return every rank's pickled value, by rank, on all ranks (collective). All must pass the same `name`."""
    return tuple(hvd.allgather_object(value, name=name))


def size() -> int:
    """Return the number of ranks that sum in graphs: all, or those of the `first_ranks` block.

    A graph is built for one such number. For another number, build a new graph.
    """
    return int(_process_set().size() if _taking_part else hvd.size())


def rank() -> int:
    """Return this rank's number among the ranks that sum in graphs."""
    return int(_process_set().rank() if _taking_part else hvd.rank())


def sum_in_graph(tensors: Sequence[Any]) -> list[Any]:
    """Sum tensors over all ranks, or those of a `first_ranks` block, within a tf.function (collective).

    Tensors of one type are negotiated as one group. Group names do not depend on the graph, so that ranks with
    different graphs can sum together.
    """
    if size() == 1:
        return list(tensors)
    summed: dict[int, Any] = {}
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        group = hvd.grouped_allreduce(
            [tensors[place] for place in places],
            op=hvd.Sum,
            name=f"sums.{dtype.name}",
            ignore_name_scope=True,
            process_set=_process_set(),
        )
        summed.update(zip(places, group, strict=True))
    return [summed[place] for place in range(len(tensors))]


def total_in_graph(tensor: Any, name: str) -> Any:
    """Sum one tensor over all ranks, or those of a `first_ranks` block, within a tf.function (collective).

    All ranks must pass the same `name`.
    """
    return hvd.allreduce(
        tensor, op=hvd.Sum, name=name.replace("/", "."), ignore_name_scope=True, process_set=_process_set()
    )


def sum_values(values: npt.NDArray[Any], *, name: str) -> npt.NDArray[Any]:
    """Sum an array over all ranks, outside of a graph, in the array's own type (collective)."""
    summed: npt.NDArray[Any] = hvd.allreduce(tf.constant(values), op=hvd.Sum, name=name).numpy()
    return summed


def require_agreement(ranks: Ranks, digest: bytes, *, what: str, when: str, advice: str) -> None:
    """Compare a 32-byte digest over all ranks (collective). Raises RanksDisagreeError on all ranks if digests differ.

    `what`, `when` and `advice` are parts of the message: "the ranks' WHAT differ WHEN: DIGESTS. ADVICE".
    """
    gathered = hvd.allgather(tf.constant([list(digest)], tf.uint8), name=f"agree.{what}").numpy()
    digests = [bytes(row) for row in gathered]
    majority, _ = Counter(digests).most_common(1)[0]
    outside = [rank for rank, found in enumerate(digests) if found != majority]
    if outside:
        lines = ", ".join(f"rank {r} ({_host(ranks, r)}) {digests[r].hex()[:12]}" for r in range(len(digests)))
        raise RanksDisagreeError(what, outside, f"the ranks' {what} differ {when}: {lines}. {advice}")


@contextlib.contextmanager
def raising_lost_ranks() -> Iterator[None]:
    """Convert the errors that TensorFlow raises within a block after a rank was lost to RankLostError.

    Other errors are not changed. Gloo immediately detects a process that exited, by its closed connection. A process
    that does not answer, or a host without power, is detected after HOROVOD_GLOO_TIMEOUT_SECONDS.
    """
    try:
        yield
    except (tf.errors.OpError, HorovodInternalError) as error:
        found = _LOST.search(str(error))
        if not found:
            raise
        raise RankLostError(found[0]) from error


def attempt(ranks: Ranks, action: Callable[[], T]) -> T:
    """Run an action on this rank and return its result, unless it fails on any rank (collective).

    The ranks on which it raises a ReportedError raise this error. The others raise RankFailedError, so that no rank
    waits for a failed rank. An action must not raise other errors: the other ranks would wait.
    """
    error: ReportedError | None = None
    result: T | None = None
    try:
        result = action()
    except ReportedError as caught:
        error = caught
    failed = hvd.allgather(tf.constant([error is not None]), name="failed").numpy()
    if failed.any():
        said = hvd.allgather_object(None if error is None else str(error), name="failures")
        if error is not None:
            raise error
        raise RankFailedError({r: f"rank {r} ({_host(ranks, r)}): {text}" for r, text in enumerate(said) if text})
    return result  # type: ignore[return-value]  # None only where the action's own type allows it


def _host(ranks: Ranks, rank: int) -> str:
    return ranks.hosts[rank] if rank < len(ranks.hosts) else "host unknown"
