"""Start, watch and stop runs on the master. The laptop calls this command line over SSH, in the agent's pushed tree.

    python3 -m agent.supervisor.cli --root /mnt/efs/runs start|enqueue|resume|status|show|follow|stop|remove|hold

Exit status: 0 success, 1 failure, 2 invalid arguments or spec, 3 blocked by other live or queued runs, 4 no such run or
several live runs.

Each command imports only the modules that it needs, because the laptop waits for the command.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from agent.errors import SpecError, describe
from agent.files.atomic_write import describe_full_disk, open_to_append
from agent.runs import liveness, run_queue, run_record, run_summary, trusted_spec
from agent.runs import run_messages as followed
from agent.runs import stored_state as states
from agent.runs.node_claims import ClaimedNode, LiveRunError, Runs, describe_claims
from agent.runs.run_directory import RunDirectory
from agent.spec.run_states import STOP_GRACE_S
from agent.spec.submission import Submission
from agent.supervisor import current_master
from agent.supervisor.current_master import wait_until_settled

FAILED: Final = 1
BAD_ARGUMENTS: Final = 2
LIVE_RUN: Final = 3
NO_SUCH_RUN: Final = 4
SHOWN_S: Final = 86400.0
MAX_SHOWN: Final = 20
"""Age in seconds, and number, up to which replaced workers are shown."""
CHANGING: Final = ("start", "enqueue", "resume", "stop", "remove", "hold")
"""Commands that a new master rejects until it has its predecessor's data. Without these, it would store runs as failed
that could continue."""


class NoSuchRunError(LookupError):
    """Report a run id that does not exist, or a missing run id although there are no runs or several live ones."""


def supervise(runs: Runs, run_id: str, ready_fd: int, lock_fd: int, lost: str) -> int:
    """Supervise a run until it ends, in the background process of `start` or the scheduler.

    Return 0 if the run succeeded, else 1. SIGTERM stops the run. `ready_fd` is a pipe to report that the supervisor is
    ready. `lock_fd` is the run's lock. `lost` describes what happened to the run's previous supervisor, if this one
    replaces it; otherwise it is "". Raises SpecError if the stored spec is missing, and OSError.
    """
    from agent.supervisor import lost_supervisor
    from agent.supervisor.supervisor import Supervisor

    spec = trusted_spec.read(run_id)
    with open_to_append(runs[run_id].log, buffering=0) as log:
        before = lost_supervisor.read_lost(runs[run_id], spec, lost) if lost else None
        supervisor = Supervisor(runs, spec, log, before=before)
        signal.signal(signal.SIGTERM, supervisor.request_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        liveness.inherit(run_id, lock_fd)
        runs[run_id].write_state(supervisor.state)
        if runs[run_id].stop_request.exists():  # `stop` may have sent its signal to the previous process.
            supervisor.request_stop()
        os.write(ready_fd, b"ready")
        os.close(ready_fd)
        final = supervisor.supervise()
    return 0 if final.state == "succeeded" else FAILED


def resolve(runs: Runs, run_id: str) -> RunDirectory:
    """Return the directory of a run. For "", it is the only live run, or the newest run if no run is live.

    Raises NoSuchRunError if the run does not exist, or for "" if there are no runs or several live ones.
    """
    ids = runs.ids()
    live = [] if run_id else [each for each in runs.held() if not (each.task or runs.is_over(each.run_id))]
    if live[1:]:
        raise NoSuchRunError(f"{len(live)} runs are live; choose one with --run ID: {describe_claims(live)}")
    chosen = run_id or ([claim.run_id for claim in live] or ids[-1:] or [""])[0]
    if not chosen:
        raise NoSuchRunError(f"there are no runs yet in {runs.root}")
    if chosen not in ids:
        raise NoSuchRunError(f"unknown run {chosen}; the latest runs: {', '.join(ids[-5:]) or 'none'}")
    return runs[chosen]


@contextlib.contextmanager
def resolved(runs: Runs, run_id: str) -> Iterator[RunDirectory]:
    """Yield the directory of a run. For "", it is the only live run, or the newest run if no run is live.

    Raises NoSuchRunError if there is no such run, or if another process removes it during the block.
    """
    directory = resolve(runs, run_id)
    try:
        yield directory
    except FileNotFoundError:
        resolve(runs, directory.run_id)
        raise


def begin(runs: Runs, submission: Submission, *, again: bool, queueing: bool) -> RunDirectory:
    """Start a run, or resume it (`again`); return its directory. With `queueing`, queue it if other runs block it.

    Also writes the script that restarts runs when the master boots. Raises LiveRunError if the run itself is live or
    queued, or if a task holds every node. Without `queueing`, raises it also if other runs block the run. Raises
    FileExistsError if the id of a new run is taken, FileNotFoundError if the run to resume does not exist, SpecError if
    the run cannot be started, and RuntimeError if its supervisor does not start.
    """
    from agent.supervisor.boot_hook import write_boot_hook
    from agent.supervisor.submit import enqueue, enqueue_again, resume, start

    try:
        directory = resume(runs, submission) if again else start(runs, submission)
    except LiveRunError as error:
        if not queueing or error.run_id == submission.spec.run_id or error.task_holds_every_node:
            raise
        directory = enqueue_again(runs, submission) if again else enqueue(runs, submission)
    write_boot_hook(runs)
    return directory


def begun(directory: RunDirectory) -> dict[str, Any]:
    """Return JSON values about a run that was started or queued: `run_id`, `hosts` (names) and `position`.

    The position in the queue counts from 1. It is None if the run is not queued.
    """
    waiting, run_id = run_queue.ids(), directory.run_id
    position = waiting.index(run_id) + 1 if run_id in waiting else None
    return {"run_id": run_id, "hosts": list(directory.stored_state().hosts), "position": position}


def occupancy(runs: Runs) -> dict[str, Any]:
    """Return the live and queued runs and recent replacements, as JSON values.

    `live` lists the live runs, oldest first: `run_id`, `hosts` (the names of its nodes) and `started_by` (None if
    unknown). `queued` lists the ids of the queued runs, the next one
    first. `replaced` lists the last MAX_SHOWN workers that were replaced in the last day, or that could not be
    replaced; the key is missing if there are none.
    """
    from agent.supervisor.worker_replacement import ReplacementLog

    live = []
    for claim in runs.held():
        if claim.task or runs.is_over(claim.run_id):
            continue  # The claim is a task's, or its run has ended and releases its nodes in a moment.
        started_by = runs[claim.run_id].started_by()
        live.append({"run_id": claim.run_id, "hosts": list(claim.names), "started_by": started_by})
    replaced = [dataclasses.asdict(each) for each in ReplacementLog().read(time.time() - SHOWN_S)]
    shown = {"replaced": replaced[-MAX_SHOWN:]} if replaced else {}
    return {"live": live, "queued": run_queue.ids(), **shown}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv`, and print its result as JSON, or an error.

    Return the exit status: 0, FAILED, BAD_ARGUMENTS, LIVE_RUN or NO_SUCH_RUN. A new master first waits for its
    predecessor's data; without the data, commands that change runs fail. On a master that was replaced, all commands
    but `supervise` fail. Also makes this master the current one for commands that change runs, and starts a missing
    scheduler.
    """
    options = _parser().parse_args(argv)
    runs = Runs(root=Path(options.root))
    settled = options.command in ("schedule", "supervise") or wait_until_settled()
    try:
        if not settled:
            if options.command in CHANGING:
                raise RuntimeError(current_master.UNKNOWN)
            print(f"warning: {current_master.UNKNOWN}", file=sys.stderr)
            return _dispatch(runs, options)
        if options.command != "supervise" and (other := current_master.successor(runs.root)):
            raise RuntimeError(current_master.replaced_message(other))
        if options.command in (*CHANGING, "schedule", "supervise"):
            current_master.take(runs.root)
        states.import_copies(runs.root)
        if options.command == "follow":
            _ensure_scheduler(runs)  # The followed run may need a scheduler to start or to continue.
        status = _dispatch(runs, options)
        if options.command not in ("schedule", "supervise"):
            _ensure_scheduler(runs)
        return status
    except LiveRunError as error:
        print(error, file=sys.stderr)
        print(json.dumps(error.to_document()))
        return LIVE_RUN
    except NoSuchRunError as error:
        print(error, file=sys.stderr)
        return NO_SUCH_RUN
    except SpecError as error:
        print(error, file=sys.stderr)
        return BAD_ARGUMENTS
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # The reader has gone.
        return FAILED
    except (OSError, RuntimeError, ValueError) as error:
        full = describe_full_disk(runs.root, str(error)) if isinstance(error, OSError) else ""
        print(full or describe(error), file=sys.stderr)
        return FAILED


def _ensure_scheduler(runs: Runs) -> None:
    if run_queue.ids() or runs.watched():
        from agent.supervisor import scheduler

        scheduler.ensure_running(runs)


def _dispatch(runs: Runs, options: argparse.Namespace) -> int:
    match options.command:
        case "start":
            directory = begin(runs, Submission.from_json(sys.stdin.read()), again=False, queueing=options.queue)
            print(json.dumps({"directory": str(directory.path), **begun(directory)}))
        case "enqueue":
            from agent.supervisor import boot_hook, submit, sweep_queue

            submissions = sweep_queue.parse(sys.stdin.read())
            print(json.dumps({"run_ids": [submit.enqueue(runs, each).run_id for each in submissions]}))
            boot_hook.write_boot_hook(runs)
        case "supervise":
            return supervise(runs, options.run, options.ready_fd, options.lock_fd, options.lost)
        case "status" if options.list:
            print(json.dumps(run_summary.summaries(runs)))
        case "status" if options.live:
            print(json.dumps(occupancy(runs)))
        case "status":
            with resolved(runs, options.run) as directory:
                print(json.dumps(run_summary.summary(directory.effective_state(), directory)))
        case "show":
            with resolved(runs, options.run) as directory:
                print(json.dumps(run_record.record(directory)))
        case "resume":
            submission = Submission.from_json(sys.stdin.read())
            with resolved(runs, submission.spec.run_id) as directory:
                begin(runs, submission, again=True, queueing=options.queue)
                print(json.dumps({"checkpoints": run_record.checkpoints(directory), **begun(directory)}))
        case "schedule":
            from agent.supervisor import scheduler

            ending = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: ending.set())  # for example, the master shuts down
            scheduler.run(runs, ending)
        case "remove":
            from agent.supervisor.resume_or_remove import remove

            with resolved(runs, options.run) as directory:
                print(json.dumps(remove(runs, directory)))
        case "follow":
            sleep = followed.sleep_while_read(sys.stdout.fileno())
            with resolved(runs, options.run) as directory:
                from_line = None if options.only_log else options.from_line
                wanted: dict[str, Any] = {"log_from": options.log_from, "rank": options.rank, "is_once": options.once}
                for message in followed.follow(directory, from_line, sleep, **wanted):
                    if message["type"] == "heartbeat" and (other := current_master.successor(runs.root)):
                        raise RuntimeError(current_master.replaced_message(other))
                    print(json.dumps(message), flush=True)
        case "stop":
            from agent.supervisor.stop_run import stop

            with resolved(runs, options.run) as directory:
                was_live = not directory.effective_state().has_ended
                state = stop(runs, directory, options.grace)
                print(json.dumps({**state.to_document(), "was_live": was_live}))
        case "hold":
            from agent.supervisor.node_reservation import hold

            nodes = [ClaimedNode.parse(text) for text in options.nodes]
            hold(runs, options.task, None if options.every else nodes, sys.stdin.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent.supervisor.cli", description="Start, watch and stop runs on the master."
    )
    parser.add_argument("--root", required=True, help="directory of all runs, on the shared file system")
    commands = parser.add_subparsers(dest="command", required=True)
    begin = commands.add_parser("start", help="start the run with the spec on standard input, in the background")
    again = commands.add_parser("resume", help="resume a run with the new spec on standard input")
    for starter in (begin, again):
        starter.add_argument("--queue", action="store_true", help="queue the run if too few nodes are free")
    commands.add_parser("enqueue", help="queue the runs of the sweep on standard input")
    commands.add_parser("schedule", help="start queued runs in order, and restart lost runs")
    supervision = commands.add_parser("supervise", help="supervise a run; `start` calls this")
    supervision.add_argument("run", help="the run's id")
    supervision.add_argument("ready_fd", type=int, help="file descriptor to report that the supervisor is ready")
    supervision.add_argument("lock_fd", type=int, help="file descriptor of the run's lock")
    supervision.add_argument("--lost", default="", help="what happened to the previous supervisor, for a restart")
    status = commands.add_parser("status", help="print a run's state as JSON")
    default_run = "default: the only live run, or else the newest"
    status.add_argument("run", nargs="?", default="", help=default_run)
    status.add_argument("--live", action="store_true", help="list the nodes of each live run, and the queued runs")
    status.add_argument("--list", action="store_true", help="list all runs, oldest first")
    show = commands.add_parser("show", help="print a run's record as JSON")
    show.add_argument("run", nargs="?", default="", help=default_run)
    removal = commands.add_parser("remove", help="remove a run that has ended")
    removal.add_argument("run", help="the run's id")
    follow = commands.add_parser("follow", help="stream metrics and state as JSON lines until the run ends")
    follow.add_argument("run", nargs="?", default="", help=default_run)
    follow.add_argument("--from-line", type=int, default=0, help="first line of metrics.jsonl to send")
    follow.add_argument("--log-from", type=int, help="first line of the log to send as well, or -N: the last N")
    follow.add_argument("--rank", type=int, help="send only this rank's lines of the log")
    follow.add_argument("--only-log", action="store_true", help="send no metrics")
    follow.add_argument("--once", action="store_true", help="print existing data and exit, without waiting for the run")
    end = commands.add_parser("stop", help="stop a run")
    end.add_argument("run", nargs="?", default="", help=default_run)
    end.add_argument("--grace", type=float, default=STOP_GRACE_S, help="seconds from SIGTERM to SIGKILL")
    holding = commands.add_parser("hold", help="reserve nodes, or the size of the worker group, until stdin is closed")
    holding.add_argument("--every", action="store_true", help="hold every node")
    holding.add_argument("task", help="name of the task for messages, such as `fab scale`")
    holding.add_argument("nodes", nargs="*", metavar="NAME=INSTANCE", help="default: the size of the group")
    return parser


if __name__ == "__main__":
    sys.exit(main())
