"""The command `chaos`: its arguments and output."""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from localcloud.chaos import runner, schedule
from localcloud.chaos.attempt import NOTICE_S, Cloud, Patterns
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError

DEFAULT_KINDS: Final = ("kill-rank", "freeze-rank", "kill-host", "cut", "drop", "slow", "api-errors", "reboot")
"""Kinds that need no other flag and no special cloud, and that hosts recover from."""
NEEDED: Final = {"kill-supervisor": "supervisor", "flip-bit": "flip"}
"""The flag that a kind requires."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop the schedule after repairing active faults."""
_KINDS_HELP: Final = (
    "kinds of faults, separated by commas (default: %(default)s). kind@REGEX only affects hosts that match REGEX, not "
    f"--hosts, for example kill-host@master. {'; '.join(f'{name}: {text}' for name, text in schedule.KINDS.items())}"
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `chaos`."""
    command.add_argument("--seed", type=int, required=True, help="the same seed and flags give the same faults")
    seconds, a_second = _number(0, 1e6, " seconds"), _number(1, 1e6, " seconds")
    for flag, kind, default, metavar, help in (
        ("--duration", seconds, 300.0, "S", "time from the start after which no fault is injected (default: 300 s)"),
        ("--first", seconds, 20.0, "S", "time from the start to the first fault (default: 20 s)"),
        (
            "--every",
            a_second,
            60.0,
            "S",
            "mean time between two faults; each interval is 0.5 to 1.5 times as long (default: 60 s)",
        ),
        ("--longest", a_second, 60.0, "S", "maximum duration of a temporary fault (default: 60 s)"),
        (
            "--close",
            _number(0, 1),
            0.0,
            "SHARE",
            "probability that a fault follows the previous one after 1 to 5 s, during recovery (default: 0)",
        ),
        ("--kinds", str, ",".join(DEFAULT_KINDS), "KINDS", _KINDS_HELP),
        ("--hosts", _expression, "", "REGEX", "only affect hosts whose name or ID matches (default: all hosts)"),
        ("--supervisor", _expression, "", "REGEX", "kill-supervisor kills a process whose command line matches"),
        (
            "--flip",
            _pattern,
            "",
            "PATTERN",
            "glob pattern, relative to the shared file systems; flip-bit damages the newest file that matches",
        ),
        (
            "--writing",
            _pattern,
            "",
            "PATTERN",
            "glob pattern of files that a program creates while it writes a checkpoint, relative to the shared file "
            "systems; spot-notice waits for a new one",
        ),
        (
            "--notice",
            seconds,
            NOTICE_S,
            "SECONDS",
            f"time from the spot notice to the termination (default: {NOTICE_S:g} s)",
        ),
    ):
        command.add_argument(flag, type=kind, default=default, metavar=metavar, help=help)
    command.add_argument(
        "--record", type=Path, metavar="FILE", help="file to which each event is appended as a line of JSON"
    )
    command.add_argument("--dry-run", action="store_true", help="only print the schedule and append it to the record")


def carry_out(layout: Layout, arguments: argparse.Namespace) -> int:
    """Print the schedule and, unless it is a dry run, inject its faults; return 0.

    Raises LocalCloudError for invalid arguments, without root, and for failed repairs. Raises NotRunningError if the
    cloud is not running or has stopped. If a signal stops the schedule, raises KeyboardInterrupt after the repairs.
    """
    faults = _schedule(arguments)
    cloud = Cloud(layout, arguments.hosts)
    if os.geteuid() != 0:
        raise LocalCloudError("chaos needs root, also with --dry-run; repeat the command with sudo")
    known = cloud.all_hosts()
    flags = {each.hosts: f"--kinds {each.kind}@{each.hosts}" for each in faults if each.hosts}
    for only, flag in {"": f"--hosts {arguments.hosts!r}", **flags}.items():
        if known and not cloud.hosts(only):
            names = ", ".join(sorted(host["name"] or host["instance_id"] for host in known))
            raise LocalCloudError(f"{flag} matches no host; the hosts are: {names}")
    began = time.monotonic()

    def record(values: dict[str, Any], at_s: float) -> None:
        if arguments.record:
            _append(arguments.record, runner.line(at_s, {"seed": arguments.seed, **values}))

    def report(text: str, values: dict[str, Any]) -> None:
        at_s = time.monotonic() - began
        print(f"{at_s:6.1f} s  {text}", flush=True)
        record(values, at_s)

    if arguments.record:
        _append(arguments.record, "")  # fail before the first fault if the file is not writable
    for fault in faults:
        print(fault, flush=True)
        if arguments.dry_run:
            record({"planned": True, **fault.document()}, 0.0)
    if arguments.dry_run:
        return 0
    patterns = Patterns(
        supervisor=arguments.supervisor, flip=arguments.flip, writing=arguments.writing, notice_s=arguments.notice
    )
    with runner.locked(layout), blocked_signals() as signals:
        outcome = runner.run(
            cloud, faults, patterns, report, interrupted=lambda s: signal.sigtimedwait(signals, s) is not None
        )
    print(f"{outcome.done} of {len(faults)} faults were injected")
    if outcome.left:
        raise LocalCloudError(
            f"not undone: {'; '.join(outcome.left)}. To undo these faults, stop the cloud: "
            f"python -m localcloud stop --name {layout.name}"
        )
    if outcome.interrupted:
        raise KeyboardInterrupt
    return 0


@contextmanager
def blocked_signals() -> Iterator[list[signal.Signals]]:
    """Block terminating signals, so that none arrives between a fault and the registration of its repair.

    Yields the blocked signals. Signals that are still pending at the end are discarded. Signals that are ignored, for
    example by nohup, stay ignored.
    """
    signals = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield signals
    finally:
        while signal.sigtimedwait(signals, 0):  # another Ctrl-C during the last repair
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _schedule(arguments: argparse.Namespace) -> tuple[schedule.Fault, ...]:
    """Draw the faults. Raises LocalCloudError if there are none, or if a kind is unknown or lacks its flag."""
    kinds = [kind.strip() for kind in arguments.kinds.split(",") if kind.strip()]
    if not kinds:
        raise LocalCloudError("--kinds: must list at least one kind")
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
        raise LocalCloudError(f"--record {path}: cannot write to this file: {error.strerror}") from error


def _number(least: float, most: float, unit: str = "") -> Callable[[str], float]:
    """Return argparse's parser for a number from `least` to `most`, both included. `unit` is for its error message."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least:g} to {most:,.0f}{unit}")
        return value

    return read


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid regular expression: {error}") from None
    return text


def _pattern(text: str) -> str:
    if not text:
        return text  # the default
    path = Path(text)
    if path.is_absolute() or ".." in path.parts:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be relative to the shared file systems, without a leading / and without .."
        )
    try:
        next(Path(os.devnull).glob(text), None)
    except IndexError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid file pattern: it names no file") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid file pattern: {error}") from None
    return text
