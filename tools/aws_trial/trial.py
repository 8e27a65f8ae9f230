"""Carry out a trial: the plan's commands, the calls to be refused, and the destruction, whatever came before."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Final, TextIO

from cluster.aws.call_log import VARIABLE
from cluster.aws.client import Aws, aws_errors
from cluster.aws.stack import find_stack
from cluster.errors import DeepcdkError
from tools import demo
from tools.aws_trial import account, plan, refusals
from tools.aws_trial.observation import Calls, Command, Observation, Refusal, Resource, median
from tools.aws_trial.redaction import redact

LAST_LINES: Final = 60
"""Of the output of a command that failed, in the report."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """One trial: its cluster and where its files go."""

    aws: Aws
    settings: Mapping[str, str]
    directory: Path
    """Where results are fetched to, and the report is written."""
    commit: str
    keep: bool = False
    """Leave the cluster up."""

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.settings["name"]

    def clean(self, text: str) -> str:
        """Return a text without what names the account."""
        names = {self.name: "CLUSTER", self.aws.region: "REGION", str(Path.home()): "~", str(demo.ROOT): "PROJECT"}
        # In the logical ids that the CDK makes of several constructs, the name stands without its dashes.
        return redact(text, {**names, self.name.replace("-", ""): "CLUSTER"})

    @property
    def where(self) -> str:
        """Return which cloud it runs on."""
        return "embedded cloud" if self.aws.endpoint else f"aws {self.aws.region}"


@dataclasses.dataclass(kw_only=True)
class Notes:
    """What was observed so far; a trial that ends early has written down all that came before."""

    commands: list[Command] = dataclasses.field(default_factory=list)
    facts: dict[str, str] = dataclasses.field(default_factory=dict)
    refusals: list[Refusal] = dataclasses.field(default_factory=list)
    stack_id: str = ""
    resources: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)


def run(trial: Trial) -> Observation:
    """Run the whole trial, and destroy its cluster unless it is to be kept, also after a failure or Ctrl-C."""
    notes = Notes()
    with tempfile.TemporaryDirectory() as scratch:
        calls = Path(scratch) / "calls.jsonl"
        try:
            _create_and_use(trial, notes, calls)
        except KeyboardInterrupt:
            print("\nInterrupted. The cluster is destroyed now; Ctrl-C again leaves it up.", flush=True)
            notes.facts["interrupted"] = "yes"
        except DeepcdkError as error:
            print(f"\n{error}", file=sys.stderr, flush=True)
            notes.facts["error"] = trial.clean(str(error))
        finally:
            if not trial.keep:
                _destroy(trial, notes, calls)
        return observation(trial, notes, parse_calls(_lines(calls)), _stack_events(trial, notes))


def _create_and_use(trial: Trial, notes: Notes, calls: Path) -> None:
    for step in plan.STEPS:
        done = execute(trial, step, calls)
        notes.commands.append(done.command)
        if step.name.startswith("doctor"):
            notes.facts |= doctor_facts(step.name, done.output)
        if step.name == plan.CREATION:
            notes.stack_id = account.stack_id(trial.aws, trial.name)
            _read_cluster(trial, notes)
        if done.command.exit_code and not step.may_fail:
            return
    if notes.stack_id:
        stack = find_stack(trial.aws, trial.name)
        groups = (stack.worker_group, stack.master_group)
        target = refusals.Target(aws=trial.aws, stack=stack, resources=tuple(notes.resources))
        print("\nMake calls that AWS must refuse", flush=True)
        for refusal in refusals.observe(target, trial.clean):
            print(f"  {refusal.name}: {refusal.code or 'NOT REFUSED'}", flush=True)
            notes.refusals.append(refusal)
        notes.facts |= account.read_group_facts(trial.aws, groups, trial.clean)


def _read_cluster(trial: Trial, notes: Notes) -> None:
    if notes.stack_id:
        notes.resources = account.read_resources(trial.aws, notes.stack_id)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """A command that has ended, with its standard output."""

    command: Command
    output: str


def execute(trial: Trial, step: plan.Step, calls: Path) -> Done:
    """Run one command with its output passed through, and its calls of the API written to `calls`."""
    words = plan.command(step, trial.settings)
    if step.name == plan.FETCH:
        words += ["--into", str(trial.directory / "runs")]
    shown = shlex.join(["fab", *step.words])
    print(f"\n{step.name}\n$ {shown}", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(
        words,
        cwd=demo.ROOT,
        env={**demo.environment(), VARIABLE: str(calls)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    copied = Copied(is_shown="--json" not in step.words)
    readers = [
        threading.Thread(target=copied.read, args=(process.stdout, sys.stdout)),
        threading.Thread(target=copied.read, args=(process.stderr, sys.stderr)),
    ]
    try:
        for reader in readers:
            reader.start()
        exit_code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # The terminal has sent it the signal too.
        raise
    finally:
        for reader in readers:
            reader.join()
    seconds = time.monotonic() - began
    print(f"({seconds:.1f} s, exit code {exit_code})", flush=True)
    lines = tuple(trial.clean(line.rstrip("\n")) for line in copied.both[-LAST_LINES:]) if exit_code else ()
    command = Command(name=step.name, line=shown, exit_code=exit_code, seconds=round(seconds, 1), last_lines=lines)
    return Done(command=command, output="".join(copied.output))


class Copied:
    """What a command writes, passed on line by line and kept; its errors too, for the report."""

    def __init__(self, *, is_shown: bool) -> None:
        self.output: list[str] = []
        self.both: list[str] = []
        """Standard output and errors, in the order in which they came."""
        self._is_shown = is_shown

    def read(self, stream: IO[str], to: TextIO) -> None:
        """Copy one of the streams to its end. Standard output is not shown where it is a document."""
        for line in stream:
            self.both.append(line)
            if to is sys.stdout:
                self.output.append(line)
            if self._is_shown or to is sys.stderr:
                print(line, end="", file=to, flush=True)


def _destroy(trial: Trial, notes: Notes, calls: Path) -> None:
    """Destroy the cluster, delete the key pair that its deployment imported, and look for what is left.

    What hinders that is written down as what is left, so that the report is written in any case.
    """
    if not plan.is_trial_name(trial.name):
        raise ValueError(f"{trial.name} is not a trial's cluster")
    try:
        for step, what in (
            (_destroy_stack, "stack not destroyed"),
            (_delete_key_pair, "key pair not deleted"),
            (_look_for_what_is_left, "not looked for what is left"),
        ):
            try:
                step(trial, notes, calls)
            except DeepcdkError as error:
                notes.left.append(f"{what}: {error}")
    except KeyboardInterrupt:
        notes.left.append("interrupted before all was destroyed")
    for line in notes.left or ["nothing with the trial's tag"]:
        print(f"  {line}", flush=True)
    if notes.left:
        print(f"  do: look in the console, and repeat `fab down --set name={trial.name}`", flush=True)


def _destroy_stack(trial: Trial, notes: Notes, calls: Path) -> None:
    stack = account.stack_id(trial.aws, trial.name)
    if not stack:
        return
    if not notes.stack_id:  # An interrupted creation has not come so far as to read them.
        notes.stack_id = stack
        _read_cluster(trial, notes)
    notes.commands.append(execute(trial, plan.DESTRUCTION, calls).command)


def _delete_key_pair(trial: Trial, notes: Notes, calls: Path) -> None:
    with aws_errors(f"deleting key pair {trial.name}"):
        trial.aws.client("ec2").delete_key_pair(KeyName=trial.name)


def _look_for_what_is_left(trial: Trial, notes: Notes, calls: Path) -> None:
    print("\nLook for what is left", flush=True)
    notes.left += account.find_left(trial.aws, trial.name, notes.resources)


def _stack_events(trial: Trial, notes: Notes) -> tuple[Resource, ...]:
    if not notes.stack_id:
        return ()
    try:
        return account.parse_events(account.read_events(trial.aws, notes.stack_id), trial.clean)
    except DeepcdkError as error:
        notes.facts["events of the stack"] = trial.clean(str(error))
        return ()


def _lines(calls: Path) -> list[str]:
    return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


def parse_calls(lines: Iterable[str]) -> tuple[Calls, ...]:
    """Return the log of calls by operation."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        call = json.loads(line)
        found.setdefault(f"{call['service']}:{call['operation']}", []).append(call)
    return tuple(
        Calls(
            operation=operation,
            count=len(made),
            seconds=median([call["seconds"] for call in made]),
            retries=sum(call["retries"] for call in made),
            errors=tuple(sorted({call["error"]["code"] for call in made if call["error"]})),
            fields=tuple(sorted({field for call in made for field in call["fields"]})),
        )
        for operation, made in sorted(found.items())
    )


def doctor_facts(step: str, output: str) -> dict[str, str]:
    """Return the states of the doctor's findings, a check each. What is no such document gives no facts."""
    try:
        findings = json.loads(output)["findings"]
    except (ValueError, KeyError, TypeError):
        return {}
    states: dict[str, list[str]] = {}
    for each in findings:
        states.setdefault(f"{step}: {each['check']}", []).append(each["state"])
    return {name: ", ".join(sorted(found)) for name, found in states.items()}


def observation(trial: Trial, notes: Notes, calls: tuple[Calls, ...], resources: tuple[Resource, ...]) -> Observation:
    """Return all that was observed, redacted."""
    return Observation(
        where=trial.where,
        date=account.now(),
        commit=trial.commit,
        settings={key: trial.clean(value) for key, value in trial.settings.items()},
        commands=tuple(notes.commands),
        resources=resources,
        calls=calls,
        refusals=tuple(notes.refusals),
        facts=notes.facts,
        left=tuple(trial.clean(line) for line in notes.left),
    )
