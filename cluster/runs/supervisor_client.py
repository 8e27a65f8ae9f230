"""Client for the supervisor on the master: one method per command, and the meaning of its exit statuses."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agent.spec.laptop_requests import secrets_command
from agent.spec.nodes import NODE_PYTHON
from agent.spec.run import RunSpec, placed
from agent.spec.run_states import QUEUED
from agent.spec.submission import Origin, Submission
from cluster import master_answers as answers
from cluster.aws.stack import Stack
from cluster.errors import DeepcdkError, HeldNodesError, LiveRunError, RemoteError
from cluster.master_answers import AnswerError
from cluster.nodes.occupancy import Occupancy
from cluster.ssh.master import Master
from cluster.ssh.stream_reader import BackgroundReader
from cluster.terminal.status_line import doing

CLEANING: Final = "fab clean"
"""Name of the task that holds nodes while it deletes files on them."""
_DOING = {
    "start": "starting the run",
    "enqueue": "queueing the runs",
    "resume": "resuming the run",
    "stop": "waiting for the run to stop",
    "remove": "removing the run",
}
_ASKING = "asking the master about its runs"
_REFUSED_STATUS = 2
_LIVE_RUN_STATUS = 3
_NO_SUCH_RUN_STATUS = 4
HOLD_SILENCE_S: Final = 90.0
"""Timeout for a message while nodes are held. The master writes every 15 s, also while it waits for a run that is
clearing some of the nodes.
"""
RELEASE_S: Final = 5.0
"""Time limit for releasing the nodes, if the master is reachable."""


def supervisor_command(stack: Stack, *arguments: str) -> list[str]:
    """Return a command line of the master's supervisor. It must run in a pushed tree."""
    return [NODE_PYTHON, "-m", "agent.supervisor.cli", "--root", stack.runs_root, *arguments]


def _named(run_id: str) -> list[str]:
    """Return [run_id], the argument that names a run; [] for the default run."""
    return [run_id] if run_id else []


def _no_such_run(said: str) -> DeepcdkError:
    said = said.strip()
    return DeepcdkError(
        said, remedy="start one with `fab train`" if "no runs yet" in said else "list the runs with `fab runs`"
    )


def _refusal(answer: Mapping[str, Any], nodes: int) -> LiveRunError | HeldNodesError:
    """Return the error for a rejected command, from the supervisor's answer: HeldNodesError if tasks hold nodes, or
    else LiveRunError.

    `nodes` is the wanted number of nodes, for the remedy; 0 if the command needs none.
    """
    if tasks := {each["task"]: _describe_hold(each) for each in answer["held"] if each.get("task")}:
        return HeldNodesError(tasks)
    held = {each["run_id"]: tuple(each["hosts"]) for each in answer["held"]}
    queued, size = answer["state"] == QUEUED, Occupancy(hosts=held).taken + nodes
    return LiveRunError(answer["live"], queued=queued, hosts=held, size=size if nodes and held and not queued else 0)


def _describe_hold(held: Mapping[str, Any]) -> str:
    """Return what a task is doing with the nodes that it holds, such as `terminating worker3`."""
    if held["hosts"]:
        return f"{'cleaning' if held['task'] == CLEANING else 'terminating'} {', '.join(held['hosts'])}"
    return "terminating all nodes" if held.get("every") else "changing the number of workers"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun:
    """A run that was started or queued."""

    position: int | None
    """Position in the queue; None if the run started immediately."""
    hosts: tuple[str, ...] = ()
    """Names of the run's nodes. They differ from the requested ones if another run has taken a node in the meantime."""
    checkpoints: tuple[str, ...] = ()
    """Checkpoints of a resumed run, oldest first."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Begun:
        """Build the result from the supervisor's checked answer."""
        hosts, checkpoints = tuple(document["hosts"]), tuple(document.get("checkpoints") or ())
        return cls(position=document.get("position"), hosts=hosts, checkpoints=checkpoints)

    def placed(self, spec: RunSpec) -> str:
        """Describe how many ranks run on which nodes. `spec` is the run's."""
        return placed(spec.ranks, self.hosts)


class Supervisor:
    """Run supervisor commands on the master, in the pushed tree `directory`."""

    def __init__(self, master: Master, stack: Stack, directory: str) -> None:
        self.master, self.stack, self.directory = master, stack, directory

    def _call(
        self, shape: answers.Rule, *arguments: str, run_id: str = "", stdin: bytes = b"", nodes: int = 0
    ) -> dict[str, Any]:
        """Run a supervisor command and return its answer.

        `nodes` is the wanted number of nodes. The remedy names it if too few are free. Raises AnswerError unless the
        answer has this `shape` and is about `run_id` ("": any run), LiveRunError or HeldNodesError if nodes are not
        free, RemoteError if the command failed, or DeepcdkError for an unknown run or a rejected request.
        """
        with doing(_DOING.get(arguments[0], _ASKING)):
            done = self.master.run(supervisor_command(self.stack, *arguments), directory=self.directory, stdin=stdin)
        if done.status == _LIVE_RUN_STATUS:
            raise _refusal(self._read(arguments[0], done.text, answers.REFUSED), nodes)
        if done.status == _NO_SUCH_RUN_STATUS:
            raise _no_such_run(done.stderr)
        if done.status == _REFUSED_STATUS:
            raise DeepcdkError(done.stderr.strip(), where=self.master.where)
        if done.status != 0:
            raise RemoteError(
                f"{_DOING.get(arguments[0], _ASKING)} failed on the master",
                status=done.status,
                output=done.stderr,
                where=self.master.where,
            )
        answer: dict[str, Any] = self._read(arguments[0], done.text, shape, run_id)
        return answer

    def _read(self, verb: str, text: str, shape: answers.Rule, run_id: str = "") -> Any:
        try:
            return answers.read(text, shape, f"`{verb}`", run_id=run_id, where=self.master.where)
        except AnswerError as error:
            if verb in _DOING:
                error.remedy = f"the master may have run the command anyway: check with `fab runs`; {error.remedy}"
            raise

    def start(self, submission: Submission, secrets: Mapping[str, str] | None = None, *, queue: bool = False) -> Begun:
        """Start a run on the master, where it continues without the laptop. With `queue` it may wait in the queue
        instead.

        `secrets` maps names to values. Raises LiveRunError if too few nodes are free or other runs are waiting, unless
        `queue` is set; HeldNodesError if a task on another machine holds nodes; DeepcdkError if the master rejects the
        run; RemoteError if the command fails; AnswerError for an invalid answer.
        """
        return self._submit("start", answers.STARTED, submission, secrets or {}, queue=queue)

    def enqueue(
        self, origin: Origin, runs: Sequence[tuple[RunSpec, Mapping[str, Any]]], secrets: Mapping[str, str]
    ) -> None:
        """Queue runs that differ in few fields of their specs, each with its estimate. None is started immediately.

        `secrets` maps names to values, for all runs. Raises the errors of `start`.
        """
        pairs = [{"spec": json.loads(spec.to_json()), "estimate": estimate} for spec, estimate in runs]
        document = {"origin": dataclasses.asdict(origin), "runs": pairs}
        with self._with_secrets([spec.run_id for spec, _ in runs], secrets):
            self._call(answers.ENQUEUED, "enqueue", stdin=json.dumps(document).encode())

    def resume(self, submission: Submission, secrets: Mapping[str, str] | None = None, *, queue: bool = False) -> Begun:
        """Resume a run. With `queue` it may wait in the queue. Raises the errors of `start`."""
        return self._submit("resume", answers.RESUMED, submission, secrets or {}, queue=queue)

    def _submit(
        self, verb: str, shape: answers.Rule, submission: Submission, secrets: Mapping[str, str], *, queue: bool
    ) -> Begun:
        """Send a run to the supervisor with its secrets. `verb` is start or resume, `shape` the rule for the answer.

        Raises the errors of `start`.
        """
        run_id, flags = submission.spec.run_id, ["--queue"] if queue else []
        with self._with_secrets([run_id], secrets):
            text, nodes = submission.to_json().encode(), len(submission.spec.hosts)
            answer = self._call(shape, verb, *flags, run_id=run_id, stdin=text, nodes=nodes)
        return Begun.from_document(answer)

    @contextlib.contextmanager
    def _with_secrets(self, run_ids: Sequence[str], secrets: Mapping[str, str]) -> Iterator[None]:
        """Pass the secrets of runs to the master over standard input. They are removed if the block fails.

        Does nothing without secrets.
        """
        if not secrets:
            yield
            return
        action, text = "sending the secrets to the master", json.dumps(dict(secrets)).encode()
        self.master.check(secrets_command("keep", *run_ids), directory=self.directory, stdin=text, doing=action)
        try:
            yield
        except BaseException:
            with contextlib.suppress(DeepcdkError):  # the master removes secrets without a run after an hour
                self.master.run(secrets_command("drop", *run_ids), directory=self.directory)
            raise

    def occupancy(self) -> Occupancy:
        """Return the nodes that each live run occupies.

        A run that has ended and is still clearing its nodes is not included.
        """
        return Occupancy.from_document(self._call(answers.LIVE, "status", "--live"))

    def status(self, run_id: str = "") -> dict[str, Any]:
        """Return a run's state; for "", that of the only live run, or else of the newest. Raises DeepcdkError for an
        unknown run.
        """
        return self._call(answers.SUMMARY, "status", *_named(run_id), run_id=run_id)

    def runs(self) -> list[dict[str, Any]]:
        """Return the state of all runs, oldest first, with queued runs."""
        return cast("list[dict[str, Any]]", self._call(answers.each(answers.SUMMARY), "status", "--list"))

    def stop(self, run_id: str, grace_s: float) -> dict[str, Any]:
        """Stop a run, wait for its end and return its final state, with `was_live`: false if it had ended before.

        `run_id` "" selects the only live run, or else the newest. A queued run is removed from the queue. `grace_s` is
        the time from SIGTERM to SIGKILL, s. Raises DeepcdkError for an unknown run.
        """
        return self._call(answers.STOPPED, "stop", *_named(run_id), "--grace", f"{grace_s:g}", run_id=run_id)

    def show(self, run_id: str = "") -> dict[str, Any]:
        """Return a run's record: state, spec, result, checkpoints, sizes. Raises DeepcdkError for an unknown run."""
        return self._call(answers.record, "show", *_named(run_id), run_id=run_id)

    def remove(self, run_id: str) -> dict[str, Any]:
        """Remove a run that has ended, and return its `run_id` and the number of removed `files` and `bytes`.

        Raises LiveRunError for a live or queued run, DeepcdkError for an unknown one, and RemoteError if the command
        fails.
        """
        return self._call(answers.REMOVED, "remove", *_named(run_id), run_id=run_id)

    @contextlib.contextmanager
    def hold(self, task: str, nodes: Mapping[str, str], *, every: bool = False) -> Iterator[None]:
        """Hold nodes during the block, so that no run starts on them while a task terminates them.

        `task` is the task's name, which other machines show. `nodes` maps names to instance ids; `every` holds all
        nodes. Without either, hold the size of the worker group, after waiting until no other machine changes it.
        Waits for a run that is clearing one of the nodes. Raises LiveRunError if a run has one of the nodes,
        HeldNodesError if a task on another machine holds one, and RemoteError if the command fails.
        """
        words = [*(["--every"] if every else []), task, *(f"{name}={found}" for name, found in nodes.items())]
        command = supervisor_command(self.stack, "hold", *words)
        over = threading.Event()

        def until_over() -> Iterator[bytes]:
            over.wait()
            yield from ()

        lines = self.master.lines(command, directory=self.directory, silence_s=HOLD_SILENCE_S, feed=until_over())
        stream = BackgroundReader(lines, self.master.where)
        try:
            answer: dict[str, Any] = {"alive": True}
            try:
                with doing("reserving the nodes"):
                    while "alive" in answer:  # the master waits for a run that is clearing its nodes
                        answer = self._read("hold", stream.next(timeout_s=HOLD_SILENCE_S) or "", answers.hold)
            except RemoteError as error:
                raise error.reworded("reserving the nodes failed on the master") from None
            if "live" in answer:
                raise _refusal(answer, 0)
            yield
        finally:
            over.set()
            with contextlib.suppress(DeepcdkError):  # a master that is gone holds nothing
                while stream.next(timeout_s=RELEASE_S) is not None:
                    pass

    def messages(self, master: Master, run_id: str, words: Sequence[str]) -> Iterator[str]:
        """Yield the supervisor's messages about a run, one JSON document a line, over the connection `master`.

        `words` are flags of the supervisor's `follow`. Raises DeepcdkError for an unknown run, RemoteError if the
        command fails.
        """
        command = supervisor_command(self.stack, "follow", *_named(run_id), *words)
        try:
            yield from master.lines(command, directory=self.directory)
        except RemoteError as error:
            if error.status == _NO_SUCH_RUN_STATUS:
                raise _no_such_run(error.output) from None
            raise error.reworded(f"following {f'run {run_id}' if run_id else 'the run'} failed") from None
