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

`agent.launch.rank` puts this module's directory into PYTHONPATH of a program's ranks. It needs Horovod alone. In a run
that is not elastic, `run` calls the function once.
"""

from __future__ import annotations

import copy
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from agent.launch.elastic.connections import Connections
    from agent.launch.elastic.launcher_client import LauncherClient, ReformWatch
    from agent.spec.elastic import Place

T = TypeVar("T")

LEAVE_S: Final = 30.0
"""How long a rank whose node is about to end waits until the launcher has it leave: EC2 gives it 2 minutes."""
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
    before `run`: `optimizer.build(model.trainable_variables)`). Values are attributes.
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
        self._left_in_step = False
        self._committed_at = time.monotonic()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def commit(self) -> None:
        """Keep the values as they are now, from which the ranks go on where one is lost (collective).

        All ranks call it after the same sums. It costs a copy of the values and two small sums: call it every few steps
        where steps are short. What came after the last one is computed again after a loss.
        """
        self._keep()
        if self._client is None or self._place is None:
            return
        if self._tells and self._hvd.rank() == 0:
            self._tell()
        self._tells = self._left_in_step = False
        self._committed_at = time.monotonic()
        wanted = self._watch() if self._watch is not None else False
        if self._hvd.broadcast_object(wanted, root_rank=0, name="deepcdk_elastic.reform"):
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
        _leave_later()
        while True:
            try:
                self._place = self._client.wait_for_place()
            except client.DismissedError as error:
                print(f"deepcdk_elastic: {error}", flush=True)
                sys.exit(0)
            os.environ.update(self._place.variables())
            try:
                self._join(connections)
                watch = client.ReformWatch(self._client)
                self._watch = watch if self._hvd.rank() == 0 else None
                with watch.watching(self._watch is not None):
                    return train(self)
            except _ReformError:
                pass
            except Exception as error:
                if not lost.is_lost_rank(error):
                    raise
                self._left_in_step = True
                connections.end()  # The launcher's next answer tells who is lost.
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
        mine = (self._commits, self._kept, self._left_in_step) if self._hvd.rank() == source else None
        theirs = self._hvd.broadcast_object(mine, root_rank=source, name="deepcdk_elastic.state")
        for name, kept in theirs[1].items():
            _restore(self, name, kept)
        self._commits, self._kept, self._left_in_step = theirs
        self._tells = self._place is not None and self._place.round > 1

    def _keep(self) -> None:
        self._kept = {name: _kept(getattr(self, name)) for name in self._names}
        self._commits += 1

    def _tell(self) -> None:
        """Tell the launcher of the first commit since the ranks formed anew, which shows it to the user."""
        if self._client is not None and self._place is not None:
            seconds = time.monotonic() - self._committed_at
            told = self._first_step(
                round=self._place.round, step=self._commits, steps_lost=int(self._left_in_step), seconds=seconds
            )
            self._client.report_step(told)


def _kept(value: Any) -> Any:
    """Return a copy of a value, from which `_restore` makes it again."""
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return copy.deepcopy(value.state_dict())
    if (variables := _variables(value)) is not None:
        return [variable.numpy().copy() for variable in variables]
    return copy.deepcopy(value)


def _restore(state: State, name: str, kept: Any) -> None:
    """Give a value what was kept of it, on this rank or another. Raises ValueError where it has other variables."""
    value = getattr(state, name)
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        value.load_state_dict(copy.deepcopy(kept))
    elif (variables := _variables(value)) is not None:
        if len(variables) != len(kept):
            raise ValueError(
                f"{name} has {len(variables)} variables on this rank, and {len(kept)} on another: build it before `run`"
            )
        for variable, array in zip(variables, kept, strict=True):
            variable.assign(array)
    else:
        setattr(state, name, copy.deepcopy(kept))


def _variables(value: Any) -> list[Any] | None:
    """Return the variables of a model, an optimizer or a variable itself; None for any other value."""
    found = [value] if hasattr(value, "assign") else getattr(value, "variables", None)
    if callable(found):  # an optimizer of Keras 2
        found = found()
    if not isinstance(found, list | tuple):
        return None
    return [*found] if all(hasattr(each, "assign") and hasattr(each, "numpy") for each in found) else None


def _leave_later() -> None:
    """Let SIGTERM on a node that is about to end wait until the launcher has this rank leave between two commits.

    A handler of the program's own stays as it is.
    """
    notice = Path(os.environ.get("DEEPCDK_LEAVING", "/nonexistent"))
    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return

    def leave(*_: object) -> None:
        if not notice.exists():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        timer = threading.Timer(LEAVE_S, os._exit, (128 + signal.SIGTERM,))
        timer.daemon = True
        timer.start()

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, leave)
