"""State of a program of one's own that outlives the loss of ranks: `import deepcdk_elastic`, for `fab train --elastic`.

    import deepcdk_elastic
    import horovod.tensorflow as hvd

    state = deepcdk_elastic.State(hvd, step=0, weights=numpy.zeros(8))

    def train(state):
        while state.step < 1000:
            gradient = hvd.allreduce(...)          # over the ranks that there are now
            state.weights, state.step = state.weights - 0.05 * gradient, state.step + 1
            state.commit()

    state.run(train)

`agent.launch.rank` puts this module's directory into PYTHONPATH of a program's ranks. It needs Horovod and NumPy. In a
run that is not elastic, `run` calls the function once.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from agent.launch.elastic.connections import Connections
    from agent.launch.elastic.launcher_client import LauncherClient, ReformWatch
    from agent.spec.elastic import Place

T = TypeVar("T")

LEAVE_S: Final = 40.0
"""How long a rank that is asked to stop, since its node is about to end, waits until the launcher has it leave: it is
asked when a minute is left."""
_PART_BYTES: Final = 1 << 26
_NOT_BEGUN: Final = -1


def _import_from_agent(name: str) -> Any:
    """Import a module of the agent, of which the program sees nothing: it may have an `agent` of its own."""
    root = str(Path(__file__).parents[4])
    own = {each: sys.modules.pop(each) for each in [*sys.modules] if each.partition(".")[0] == "agent"}
    sys.path.insert(0, root)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(root)
        for each in [each for each in sys.modules if each.partition(".")[0] == "agent"]:
            del sys.modules[each]
        sys.modules.update(own)


class _ReformError(Exception):
    """Report, on all ranks between two commits, that ranks are to join or leave."""


class State:
    """Named values that all ranks have, and with which those that are left go on where one is lost.

    A value is anything that can be pickled, as a number or an array, a module or optimizer of PyTorch (by its
    `state_dict`), or a model, optimizer or variable of TensorFlow or Keras (by its variables, which must be there
    before `run`: `optimizer.build(model.trainable_variables)`). Values are attributes, and there are no others.
    """

    def __init__(self, hvd: Any, **values: Any) -> None:
        """`hvd`: horovod.tensorflow or horovod.torch, not initialised yet. Raises ValueError for a name of its own."""
        if taken := [name for name in values if name.startswith("_") or hasattr(type(self), name)]:
            raise ValueError(f"{taken[0]!r} cannot be the name of a value: it is one of State's own")
        self._hvd, self._names = hvd, tuple(values)
        for name, value in values.items():
            setattr(self, name, value)
        self._commits = _NOT_BEGUN
        self._kept: dict[str, Any] = {}
        self._place: Place | None = None
        self._client: LauncherClient | None = None
        self._watch: ReformWatch | None = None
        self._first_step: Any = None
        self._tells = False
        """Whether the first commit since the ranks formed anew is still to be told, by rank 0."""
        self._is_committing = False
        self._lost_work = False
        """Whether a loss has cut short what came after the last commit."""
        self._committed_at = time.monotonic()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a value. Raises AttributeError for one that was not named at first, and would not be kept."""
        if not name.startswith("_") and name not in self._names:
            raise AttributeError(f"{name!r} was not given to State({', '.join(self._names)}), which would not keep it")
        object.__setattr__(self, name, value)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def commit(self) -> None:
        """Keep the values as they are now, from which the ranks go on where one is lost (collective).

        All ranks call it after the same sums. It costs a copy of the values and two small broadcasts: call it every few
        steps where steps are short. What came after the last one is computed again after a loss. Raises ValueError for
        a value whose number of variables has changed.
        """
        if self._client is None or self._place is None:
            return
        self._keep()
        if self._tells and self._hvd.rank() == 0:
            self._tell()
        self._tells = self._lost_work = False
        self._committed_at = time.monotonic()
        self._is_committing = True
        wanted = self._watch() if self._watch is not None else False
        wanted = self._hvd.broadcast_object(wanted, root_rank=0, name="deepcdk_elastic.reform")
        self._is_committing = False
        if wanted:
            raise _ReformError

    def run(self, train: Callable[[State], T]) -> T:
        """Initialise Horovod, call `train` with this state, and again after each loss; return what it returns.

        It begins with the values of rank 0, later with those of the last commit. A rank that the others go on without
        ends here, with status 0. Raises what `train` raises where no rank was lost.
        """
        client = _import_from_agent("agent.launch.elastic.launcher_client")
        connections = _import_from_agent("agent.launch.elastic.connections").Connections()
        self._client, self._first_step = client.LauncherClient.from_environ(os.environ), client.FirstStep
        if self._client is None:
            self._join(connections)
            return train(self)
        lost = _import_from_agent("agent.launch.elastic.lost_ranks")
        result: list[T] = []
        with _leaving_later():
            while True:
                try:
                    self._place = self._client.wait_for_place()
                except client.DismissedError as error:
                    if result:  # The others have ended, of which none could before all had come to their result.
                        return result[0]
                    print(f"deepcdk_elastic: {error}", flush=True)
                    sys.exit(0)
                os.environ.update(self._place.variables())
                result.clear()
                try:
                    self._join(connections)
                    watch = client.ReformWatch(self._client)
                    self._watch = watch if self._hvd.rank() == 0 else None
                    with watch.watching(self._watch is not None):
                        result.append(train(self))
                    # Where a rank is lost now, those that have its result all make its last steps again.
                    self._hvd.allgather_object(None, name="deepcdk_elastic.end")
                    return result[0]
                except _ReformError:
                    pass
                except Exception as error:
                    if not lost.lost_rank(error):
                        raise
                    self._lost_work = not (self._is_committing or result)
                    connections.end()  # The launcher's next answer tells who is lost.
                self._is_committing = False
                self._hvd.shutdown()

    def _join(self, connections: Connections) -> None:
        """Join the other ranks, and take over what the one has that has come furthest (collective)."""
        with connections.opening():
            self._hvd.init()
        if self._client is not None:
            self._client.report_joined()
        commits = self._hvd.allgather_object(self._commits, name="deepcdk_elastic.commits")
        source = max(range(len(commits)), key=lambda rank: (commits[rank], -rank))
        if commits[source] == _NOT_BEGUN and self._hvd.rank() == source:
            self._keep()
        if commits[source] == _NOT_BEGUN or min(commits) < commits[source]:
            # By reference: a class of the program's script is the same one on all ranks.
            mine = pickle.dumps((self._commits, self._kept)) if self._hvd.rank() == source else b""
            theirs = _broadcast(self._hvd, mine, source)
            self._commits, self._kept = pickle.loads(theirs)  # noqa: S301  # from a rank of this run, as all sums are
        for name, kept in self._kept.items():
            _restore(self, name, kept)
        self._tells = self._place is not None and self._place.round > 1

    def _keep(self) -> None:
        """Keep the values. Raises ValueError where one has more or fewer variables than before."""
        kept = {name: _kept(name, getattr(self, name)) for name in self._names}
        for name, before in self._kept.items():
            if _variables(getattr(self, name)) is not None and len(before) != len(kept[name]):
                raise ValueError(_unbuilt(name, f"had {len(before)} variables, and has {len(kept[name])} now"))
        self._kept, self._commits = kept, self._commits + 1

    def _tell(self) -> None:
        """Report the first commit since the ranks formed anew to the launcher, which shows it to the user."""
        if self._client is not None and self._place is not None:
            seconds = time.monotonic() - self._committed_at
            told = self._first_step(
                round=self._place.round, step=self._commits, steps_lost=int(self._lost_work), seconds=seconds
            )
            self._client.report_step(told)


def _broadcast(hvd: Any, data: bytes, source: int) -> bytes:
    """Return the bytes of one rank on all of them (collective).

    In parts: `hvd.broadcast_object` counts in 32 bits.
    """
    import numpy as np

    size = hvd.broadcast_object(len(data), root_rank=source, name="deepcdk_elastic.bytes")
    is_torch = hvd.__name__.startswith("horovod.torch")
    tensor = importlib.import_module("torch").from_numpy if is_torch else importlib.import_module("tensorflow").constant
    whole = np.frombuffer(data, dtype=np.uint8) if hvd.rank() == source else np.zeros(size, dtype=np.uint8)
    parts = []
    for at in range(0, size, _PART_BYTES):
        part = whole[at : at + _PART_BYTES].copy()
        received = hvd.broadcast(tensor(part), root_rank=source, name=f"deepcdk_elastic.part.{at // _PART_BYTES}")
        parts.append(received.numpy().tobytes())
    return b"".join(parts)


def _unbuilt(name: str, what: str) -> str:
    return f"{name} {what}: build it before `run`, as by optimizer.build(model.trainable_variables)"


def _kept(name: str, value: Any) -> Any:
    """Return a copy of a value, from which `_restore` makes it again. Raises ValueError for one without variables."""
    if _has_state_dict(value):
        return copy.deepcopy(value.state_dict())
    if (variables := _variables(value)) is not None:
        if not variables:
            raise ValueError(_unbuilt(name, "has no variables yet"))
        return [variable.numpy().copy() for variable in variables]
    return copy.deepcopy(value)


def _restore(state: State, name: str, kept: Any) -> None:
    """Give a value what was kept of it, on this rank or another. Raises ValueError where it has other variables."""
    value = getattr(state, name)
    if _has_state_dict(value):
        value.load_state_dict(copy.deepcopy(kept))
    elif (variables := _variables(value)) is not None:
        if len(variables) != len(kept):
            raise ValueError(_unbuilt(name, f"has {len(variables)} variables on this rank, and {len(kept)} on another"))
        for variable, array in zip(variables, kept, strict=True):
            variable.assign(array)
    else:
        setattr(state, name, copy.deepcopy(kept))


def _has_state_dict(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _variables(value: Any) -> list[Any] | None:
    """Return the variables of a model, an optimizer or a variable itself; None for any other value."""
    found = [value] if hasattr(value, "assign") else getattr(value, "variables", None)
    if callable(found):  # an optimizer of Keras 2
        found = found()
    if not isinstance(found, list | tuple):
        return None
    return [*found] if all(hasattr(each, "assign") and hasattr(each, "numpy") for each in found) else None


@contextlib.contextmanager
def _leaving_later() -> Iterator[None]:
    """Put off the end by SIGTERM, within a block, on a node that is about to end: the launcher has this rank leave.

    A handler of the program's own stays as it is. Where no commit comes in time, the rank is killed, and the others go
    on without it as after any loss.
    """
    notice = Path(os.environ.get("DEEPCDK_LEAVING", "/nonexistent"))
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    timers: list[threading.Timer] = []

    def leave(*_: object) -> None:
        if not notice.exists():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        timers.append(threading.Timer(LEAVE_S, os.kill, (os.getpid(), signal.SIGKILL)))
        timers[-1].daemon = True
        timers[-1].start()

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for timer in timers:
            timer.cancel()
