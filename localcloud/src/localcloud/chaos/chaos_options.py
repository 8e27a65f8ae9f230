"""The command `chaos`: its arguments, and what it prints and records."""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from localcloud.chaos import leftovers, runner, schedule
from localcloud.chaos.attempt import NOTICE_S, Patterns, Scene
from localcloud.errors import LocalCloudError
from localcloud.layout import Layout

DEFAULT_KINDS: Final = ("kill-rank", "freeze-rank", "kill-host", "cut", "drop", "slow", "api-errors", "reboot")
"""Those that need no further flag and no special cloud, and after which the hosts that there were come back."""
NEEDED: Final = {"kill-supervisor": "supervisor", "flip-bit": "flip"}
"""Kinds that need a flag, and its name."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals after which what lasts is undone before the end."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `chaos`."""
    kinds = "; ".join(f"{name}: {text}" for name, text in schedule.KINDS.items())
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="the same seed gives the same faults")
    what.add_argument(
        "--undo", action="store_true", help="end what lasts because a chaos was killed (SIGKILL), and do nothing else"
    )
    command.add_argument("--duration", type=_seconds, default=300.0, metavar="S", help="no fault after it: 300 s")
    command.add_argument("--first", type=_seconds, default=20.0, metavar="S", help="before the first fault: 20 s")
    command.add_argument(
        "--every", type=_a_second, default=60.0, metavar="S", help="between two faults, times 0.5 to 1.5: 60 s"
    )
    command.add_argument("--longest", type=_a_second, default=60.0, metavar="S", help="of one that lasts: 60 s")
    command.add_argument(
        "--close",
        type=_share,
        default=0.0,
        metavar="SHARE",
        help="of the faults that follow the one before after 1 to 5 s, during what recovers from it: 0",
    )
    command.add_argument(
        "--kinds",
        default=",".join(DEFAULT_KINDS),
        help="with commas between, by default %(default)s; kind@REGEX meets the hosts that match it, whatever --hosts "
        f"says, as kill-host@master. {kinds}",
    )
    command.add_argument(
        "--hosts", type=_expression, default="", metavar="REGEX", help="spare hosts whose name and id do not match"
    )
    command.add_argument(
        "--supervisor", type=_expression, default="", metavar="REGEX", help="command line of what kill-supervisor kills"
    )
    command.add_argument(
        "--flip", type=_pattern, default="", metavar="PATTERN", help="files of flip-bit, below the file systems"
    )
    command.add_argument(
        "--writing",
        type=_pattern,
        default="",
        metavar="PATTERN",
        help="what is there while a checkpoint is written, below the file systems: spot-notice waits for one",
    )
    command.add_argument(
        "--notice",
        type=_seconds,
        default=NOTICE_S,
        metavar="SECONDS",
        help=f"from the notice of spot-notice to the end of the instance (default: {NOTICE_S:g}, as AWS)",
    )
    command.add_argument("--record", type=Path, metavar="FILE", help="append each event as a line of JSON")
    command.add_argument(
        "--dry-run", action="store_true", help="print the schedule, and append it to the record, but do nothing"
    )


def carry_out(layout: Layout, arguments: argparse.Namespace) -> int:
    """Print the schedule and carry it out, or end what an earlier one left; return 0.

    Raises LocalCloudError for arguments that do not fit and where something could not be undone, NotRunningError for a
    cloud that is not up or has ended meanwhile, KeyboardInterrupt after what lasts is undone where a signal ended the
    schedule.
    """
    if arguments.undo and arguments.dry_run:
        raise LocalCloudError("--dry-run shows a schedule, and --undo has none: leave one of them out")
    faults = () if arguments.undo else _schedule(arguments)
    scene = runner.Cloud(layout, arguments.hosts)
    if os.geteuid() != 0:
        raise LocalCloudError("only root can carry out faults; run it with sudo")
    known = scene.all_hosts()
    flags = {each.hosts: f"--kinds {each.kind}@{each.hosts}" for each in faults if each.hosts}
    for only, flag in {"": f"--hosts {arguments.hosts!r}", **flags}.items():
        if known and not scene.hosts(only):
            names = ", ".join(sorted(host["name"] or host["instance_id"] for host in known))
            raise LocalCloudError(f"{flag} matches none of the hosts: {names}")
    began = time.monotonic()
    drawn_from = {} if arguments.undo else {"seed": arguments.seed}

    def record(values: dict[str, Any], at_s: float) -> None:
        if arguments.record:
            _append(arguments.record, runner.line(at_s, {**drawn_from, **values}))

    def report(text: str, values: dict[str, Any]) -> None:
        at_s = time.monotonic() - began
        print(f"{at_s:6.1f} s  {text}", flush=True)
        record(values, at_s)

    if arguments.record:
        _append(arguments.record, "")  # refused before the first fault, and not after it
    if arguments.dry_run:
        for fault in faults:
            print(fault, flush=True)
            record({"planned": True, **fault.document()}, 0.0)
        return 0
    with runner.locked(layout):
        return _undo(scene, report) if arguments.undo else _run(scene, faults, arguments, report)


def _undo(scene: Scene, report: runner.Report) -> int:
    ended, left = leftovers.end_all(scene, report)
    print(f"faults that were ended: {ended}")
    _check_undone(left)
    return 0


def _run(scene: Scene, faults: Sequence[schedule.Fault], arguments: argparse.Namespace, report: runner.Report) -> int:
    for fault in faults:
        print(fault, flush=True)
    patterns = Patterns(
        supervisor=arguments.supervisor,
        flip=arguments.flip,
        writing=arguments.writing,
        notice_s=arguments.notice,
    )
    with blocked_signals() as signals:
        outcome = runner.run(
            scene, faults, patterns, report, interrupted=lambda s: signal.sigtimedwait(signals, s) is not None
        )
    print(f"{outcome.done} of {len(faults)} faults were carried out")
    _check_undone(outcome.left)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return 0


def _check_undone(left: Sequence[str]) -> None:
    if left:
        listed = "; ".join(left)
        raise LocalCloudError(f"not undone: {listed}. A cloud that is stopped and started again has nothing of it")


@contextmanager
def blocked_signals() -> Iterator[list[signal.Signals]]:
    """Keep signals that end a process waiting, so that none comes between a fault and the note how it is undone.

    Those that are ignored, as by nohup, stay so.
    """
    signals = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield signals
    finally:
        while signal.sigtimedwait(signals, 0):  # another Ctrl-C while the last fault was undone
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _schedule(arguments: argparse.Namespace) -> tuple[schedule.Fault, ...]:
    """Draw the faults. Raises LocalCloudError where there are none, or where one lacks its flag."""
    kinds = [kind.strip() for kind in arguments.kinds.split(",") if kind.strip()]
    if not kinds:
        raise LocalCloudError("--kinds: name one at least")
    for each in kinds:
        kind, _, hosts = each.partition("@")
        if kind not in schedule.KINDS:
            raise LocalCloudError(f"--kinds {kind!r}: must be one of {', '.join(schedule.KINDS)}")
        try:
            _expression(hosts)
        except argparse.ArgumentTypeError as error:
            raise LocalCloudError(f"--kinds {kind}@{error}") from None
        flag = NEEDED.get(kind)
        if flag and not getattr(arguments, flag):
            raise LocalCloudError(f"--kinds {kind} needs --{flag}")
    if arguments.first >= arguments.duration:
        raise LocalCloudError(
            f"--first {arguments.first:g}: must be less than --duration, {arguments.duration:g}, or there is no fault"
        )
    return schedule.draw(
        arguments.seed,
        kinds=kinds,
        first_s=arguments.first,
        every_s=arguments.every,
        duration_s=arguments.duration,
        longest_s=arguments.longest,
        close_share=arguments.close,
    )


def _append(path: Path, text: str) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise LocalCloudError(f"--record {path}: {error.strerror}") from error


def _seconds(text: str) -> float:
    return _number(text, 0.0)


def _a_second(text: str) -> float:
    return _number(text, 1.0)


def _number(text: str, least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} must be {least:g} to 1,000,000 seconds")
    return value


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} must be 0 to 1")
    return value


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def _pattern(text: str) -> str:
    if not text:
        return text  # the default
    path = Path(text)
    if path.is_absolute() or ".." in path.parts:
        raise argparse.ArgumentTypeError(f"{text!r} must lie below the shared file systems: no / before it, no ..")
    try:
        next(Path(os.devnull).glob(text), None)
    except (ValueError, IndexError) as error:  # the latter for "."
        raise argparse.ArgumentTypeError(f"{text!r} is no pattern of files: {error}") from None
    return text
