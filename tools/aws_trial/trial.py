"""Carry out a trial: the plan's commands, the calls to be refused, and the destruction, whatever came before."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

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
    began, output = time.monotonic(), []
    process = subprocess.Popen(
        words,
        cwd=demo.ROOT,
        env={**demo.environment(), VARIABLE: str(calls)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        for line in process.stdout or ():
            output.append(line)
            if "--json" not in step.words:
                print(line, end="", flush=True)
        exit_code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # The terminal has sent it the signal too.
        raise
    seconds = time.monotonic() - began
    print(f"({seconds:.1f} s, exit code {exit_code})", flush=True)
    shown_lines = output[-LAST_LINES:] if exit_code else []
    lines = tuple(trial.clean(line.rstrip("\n")) for line in shown_lines)
    command = Command(name=step.name, line=shown, exit_code=exit_code, seconds=round(seconds, 1), last_lines=lines)
    return Done(command=command, output="".join(output))


def _destroy(trial: Trial, notes: Notes, calls: Path) -> None:
    """Destroy the cluster, delete the key pair that its deployment imported, and look for what is left.

    What hinders that is written down as what is left, so that the report is written in any case.
    """
    if not plan.is_trial_name(trial.name):
        raise ValueError(f"{trial.name} is not a trial's cluster")
    try:
        if account.stack_id(trial.aws, trial.name):
            notes.commands.append(execute(trial, plan.DESTRUCTION, calls).command)
        with aws_errors(f"deleting key pair {trial.name}"):
            trial.aws.client("ec2").delete_key_pair(KeyName=trial.name)
        print("\nLook for what is left", flush=True)
        notes.left += account.find_left(trial.aws, trial.name, notes.resources)
    except KeyboardInterrupt:
        notes.left.append("interrupted before all was destroyed")
    except DeepcdkError as error:
        notes.left.append(f"not destroyed: {error}")
    for line in notes.left or ["nothing with the trial's tag"]:
        print(f"  {line}", flush=True)
    if notes.left:
        print(f"  do: look in the console, and repeat `fab down --set name={trial.name}`", flush=True)


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
