"""The pre-flight of one run, carried out: ask its hosts for facts, prove an allreduce on them, keep the report."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from agent.files.atomic_write import write_atomically
from agent.launch.horovodrun_command import horovodrun
from agent.launch.hosts import Crew
from agent.preflight import checks
from agent.remote.command import Completed
from agent.runs.store import RunDirectory
from agent.spec.horovod import Knobs
from agent.spec.run import RunSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspection:
    """Look at a run's hosts before its ranks start."""

    launch: RunSpec
    directory: RunDirectory
    runs_root: Path
    crew: Crew
    gives_up: Callable[[], bool]
    """Tells that the run is to stop before it has begun."""
    tell: Callable[[str], None]
    """Takes what is being done now."""
    say: Callable[[str], None]
    """Takes a line of the log."""

    def carry_out(self, python: str, heard: Mapping[str, Completed]) -> None:
        """Check the hosts with the runtime's interpreter; raise PreflightError, which names the bad ones.

        `heard` is what they have said already: one that told its facts is not asked again.
        """
        launch = self.launch
        if launch.preflight == "skip" or launch.launcher or self.gives_up():
            return
        self.tell("pre-flight: looking at the nodes")
        answers = checks.told_in(heard)
        absent = [host for host in launch.hosts if host.name not in answers]
        answers |= self.crew.everywhere(absent, checks.facts_command(python, launch), checks.FACTS_TIMEOUT_S)
        if self.gives_up():
            return
        report, facts = checks.judge(launch, answers, hashlib.sha256(self.directory.spec.read_bytes()).hexdigest())
        proved = self.runs_root / ".proved" / checks.key(launch, python, facts)
        if not report.findings and (launch.preflight == "full" or not proved.exists()):
            self.tell("pre-flight: proving an allreduce")
            status, output = self._prove(python)
            if self.gives_up():
                return
            report = checks.judge_allreduce(launch, report, status, output)
            if not report.findings:
                proved.parent.mkdir(exist_ok=True)
                proved.touch()
        elif not report.findings:
            report = checks.as_proved(report)
        write_atomically(self.directory.preflight, json.dumps(report.to_document(), indent=1))
        for line in report.lines():
            self.say(line)
        if report.findings:
            raise checks.PreflightError(report)

    def _prove(self, python: str) -> tuple[int, str]:
        """Run the allreduce on the run's hosts; return its status, 124 after a time-out, and its output."""
        path = self.directory.path / "preflight.log"
        command = horovodrun(
            dataclasses.replace(self.launch, knobs=Knobs()), python, checks.proof_ranks(python, self.launch)
        )
        with path.open("wb") as output:
            launcher = self.crew.start(command, output, NCCL_DEBUG="INFO")
            self.crew.wait_for(launcher, checks.PROOF_TIMEOUT_S, until=self.gives_up)
        status = launcher.poll()
        if status is None:
            self.crew.kill(launcher)
            launcher.wait()
        return 124 if status is None else status, path.read_text(encoding="utf-8", errors="replace")
