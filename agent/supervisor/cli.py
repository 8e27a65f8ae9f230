"""Start, watch and stop runs on the master: the one command line that the laptop calls there.

`python3 -m agent.supervisor.cli --root /mnt/efs/runs start|resume|status|show|follow|logs|stop|remove|schedule ...`, in
the agent's pushed tree.
Exit status: 0 well, 1 failed, 2 bad arguments, 3 another run is live or queued, 4 no such run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.errors import SpecError
from agent.files.atomic_write import write_atomically
from agent.runs import follow as followed
from agent.runs import record
from agent.runs.directory import DISK_FULL, DISK_FULL_REASON, RunDirectory, State
from agent.runs.process_identity import ProcessIdentity
from agent.runs.run_queue import WITHDRAWN, RunQueue
from agent.runs.store import LiveRunError, Runs
from agent.spec.provenance import Submission
from agent.spec.run import RunSpec
from agent.spec.states import QUEUED, STOP_GRACE_S
from agent.supervisor import scheduler
from agent.supervisor.lost_run import kill, mark_lost
from agent.supervisor.resume import remove
from agent.supervisor.submit import enqueue, enqueue_again, resume, start
from agent.supervisor.supervisor import Supervisor

FAILED: Final = 1
BAD_ARGUMENTS: Final = 2
LIVE_RUN: Final = 3
NO_SUCH_RUN: Final = 4


class NoSuchRunError(LookupError):
    """Report a run that is not on the shared file system."""


def supervise(runs: Runs, run_id: str, ready_fd: int) -> int:
    """Supervise a run, in the process that `start` leaves behind."""
    spec = RunSpec.from_json(runs[run_id].spec.read_text(encoding="utf-8"))
    with runs[run_id].log.open("ab", buffering=0) as log:
        supervisor = Supervisor(runs, spec, log)
        signal.signal(signal.SIGTERM, supervisor.request_stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        runs.hand_over(run_id, ProcessIdentity.of(os.getpid()))
        runs[run_id].write_state(supervisor.state)
        if runs[run_id].stop_request.exists():  # The process that held this run before was signalled.
            supervisor.request_stop()
        os.write(ready_fd, b"ready")
        os.close(ready_fd)
        final = supervisor.supervise()
    return 0 if final.state == "succeeded" else FAILED


def resolve(runs: Runs, run_id: str) -> RunDirectory:
    """Return the named run's directory; for "" the live run's, else the newest one's. Raises NoSuchRunError."""
    ids = runs.ids()
    chosen = run_id or runs.live() or (ids[-1] if ids else "")
    if not chosen:
        raise NoSuchRunError(f"no run under {runs.root} yet")
    if chosen not in ids:
        raise NoSuchRunError(f"no run {chosen} under {runs.root}; the last ones: {', '.join(ids[-5:]) or 'none'}")
    return runs[chosen]


def stop(runs: Runs, directory: RunDirectory, grace_s: float) -> State:
    """Stop a run: its ranks get SIGTERM and `grace_s` seconds, then SIGKILL. Return its final state.

    A queued run is taken out of the queue. A run whose supervisor is dead has its left-over processes killed on all its
    hosts.
    """
    if directory.effective_state().state == QUEUED:
        RunQueue(runs=runs).finish(directory.run_id, "stopped", WITHDRAWN)
    state = directory.effective_state()
    if state.is_live:
        write_atomically(directory.stop_request, json.dumps({"grace_s": grace_s, "time": time.time()}))
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            os.kill(state.owner.pid, signal.SIGTERM)
        while (state := directory.effective_state()).is_live:
            time.sleep(followed.POLL_S)
        return state
    if directory.has_lost_supervisor:
        kill(runs, RunSpec.from_json(directory.spec.read_text(encoding="utf-8")))
        mark_lost(directory)
        state = directory.stored_state()
        runs.release(directory.run_id)
    return state


def begin(runs: Runs, submission: Submission, *, again: bool, queueing: bool) -> RunDirectory:
    """Start or resume (`again`) a run, at once or, with `queueing`, when it is the next. Raises LiveRunError."""
    try:
        return resume(runs, submission) if again else start(runs, submission)
    except LiveRunError as error:
        if not queueing or error.run_id == submission.spec.run_id:
            raise
    return enqueue_again(runs, submission) if again else enqueue(runs, submission)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(argv)
    runs = Runs(root=Path(options.root))
    try:
        status = _dispatch(runs, options)
        if options.command not in ("schedule", "supervise"):
            scheduler.ensure_running(runs)
        return status
    except LiveRunError as error:
        print(error, file=sys.stderr)
        print(json.dumps({"live": error.run_id, "state": error.state}))
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
        full = isinstance(error, OSError) and error.errno in DISK_FULL
        print(f"{DISK_FULL_REASON}: make room below {runs.root}" if full else error, file=sys.stderr)
        return FAILED


def _dispatch(runs: Runs, options: argparse.Namespace) -> int:
    match options.command:
        case "start":
            directory = begin(runs, Submission.from_json(sys.stdin.read()), again=False, queueing=options.queue)
            scheduler.write_boot_hook(runs)
            position = RunQueue(runs=runs).position(directory.run_id)
            print(json.dumps({"run_id": directory.run_id, "directory": str(directory.path), "position": position}))
        case "supervise":
            return supervise(runs, options.run, options.ready_fd)
        case "status" if options.list:
            print(json.dumps([followed.summary(runs[run_id].shown_state(), runs[run_id]) for run_id in runs.ids()]))
        case "status":
            if options.live and runs.live() is None:
                print("null")
            else:
                directory = resolve(runs, options.run)
                print(json.dumps(followed.summary(directory.effective_state(), directory)))
        case "show":
            print(json.dumps(record.record(resolve(runs, options.run))))
        case "resume":
            submission = Submission.from_json(sys.stdin.read())
            directory = resolve(runs, submission.spec.run_id)
            begin(runs, submission, again=True, queueing=options.queue)
            scheduler.write_boot_hook(runs)
            found, position = record.checkpoints(directory), RunQueue(runs=runs).position(directory.run_id)
            print(json.dumps({"run_id": directory.run_id, "checkpoints": found, "position": position}))
        case "schedule":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `stop` sends it to a run that is being handed over.
            scheduler.run(runs)
        case "remove":
            print(json.dumps(remove(runs, resolve(runs, options.run))))
        case "follow":
            sleep = followed.sleep_while_read(sys.stdout.fileno())
            for message in followed.follow(
                resolve(runs, options.run), options.from_line, sleep, log_from=options.log_from
            ):
                print(json.dumps(message), flush=True)
        case "logs":
            sleep, directory = followed.sleep_while_read(sys.stdout.fileno()), resolve(runs, options.run)
            for line in followed.log_lines(directory, following=options.follow, rank=options.rank, sleep=sleep):
                print(line, flush=options.follow)
        case "stop":
            directory = resolve(runs, options.run)
            was_live = not directory.effective_state().has_ended
            state = stop(runs, directory, options.grace)
            print(json.dumps({**state.to_document(), "was_live": was_live}))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent.supervisor.cli", description="Start, watch and stop runs on the master."
    )
    parser.add_argument("--root", required=True, help="directory of all runs, on the shared file system")
    commands = parser.add_subparsers(dest="command", required=True)
    begin = commands.add_parser("start", help="start the run whose spec comes on standard input, and leave it running")
    again = commands.add_parser("resume", help="resume the run whose new spec comes on standard input")
    for starter in (begin, again):
        starter.add_argument("--queue", action="store_true", help="wait for its turn where another run is live")
    commands.add_parser(
        "schedule", help="start the waiting runs, one after the other; called where runs wait, and at boot"
    )
    supervision = commands.add_parser("supervise", help="supervise a run; `start` calls this")
    supervision.add_argument("run")
    supervision.add_argument("ready_fd", type=int)
    status = commands.add_parser("status", help="print a run's state as JSON")
    status.add_argument("run", nargs="?", default="", help="default: the live run, else the newest")
    status.add_argument("--live", action="store_true", help="the live run, or null")
    status.add_argument("--list", action="store_true", help="all runs, oldest first")
    show = commands.add_parser("show", help="print all that is kept of a run as JSON")
    show.add_argument("run", nargs="?", default="")
    removal = commands.add_parser("remove", help="remove a run that has ended")
    removal.add_argument("run")
    follow = commands.add_parser("follow", help="stream metrics and state as JSON lines until the run ends")
    follow.add_argument("run", nargs="?", default="")
    follow.add_argument("--from-line", type=int, default=0, help="first line of metrics.jsonl to send")
    follow.add_argument("--log-from", type=int, help="first line of the log to send as well; default: none of it")
    logs = commands.add_parser("logs", help="print the launcher's log")
    logs.add_argument("run", nargs="?", default="")
    logs.add_argument("-f", "--follow", action="store_true", help="until the run ends")
    logs.add_argument("--rank", type=int, default=None)
    end = commands.add_parser("stop", help="stop a run")
    end.add_argument("run", nargs="?", default="")
    end.add_argument("--grace", type=float, default=STOP_GRACE_S, help="seconds from SIGTERM to SIGKILL")
    return parser


if __name__ == "__main__":
    sys.exit(main())
