"""Run the pre-flight of a run: collect its hosts' facts, test an allreduce on them, and write the report."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from agent.files.safe_read import open_regular
from agent.launch.launcher_command import Interpreters, horovodrun, launcher_command
from agent.launch.run_hosts import Hosts
from agent.preflight import node_checks
from agent.preflight.allreduce import TORCH
from agent.preflight.gpu_checks import TIMED_OUT
from agent.preflight.node_facts import MARK as FACTS
from agent.preflight.node_facts import NodeFacts, facts_command
from agent.preflight.report import PreflightError, Report, as_proved_before
from agent.remote.ssh import Completed
from agent.runs.run_directory import RunDirectory
from agent.spec.horovod import Knobs
from agent.spec.launchers import HOROVOD
from agent.spec.run import RunSpec

FACTS_TIMEOUT_S: Final = 180.0
"""On a node with GPUs, this includes an import of TensorFlow."""
PROOF_BY_START: Final = 10.0
"""If the ranks take long to start, as on emulated processors, the test may take this many times as long."""
MAX_OUTPUT: Final = 32 << 20
"""Maximum bytes of the allreduce's output to read: enough for NCCL's lines from a thousand ranks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preflight:
    """The checks of a run's hosts before its ranks start."""

    spec: RunSpec
    directory: RunDirectory
    runs_root: Path
    hosts: Hosts
    is_cancelled: Callable[[], bool]
    """Returns whether the run was asked to stop before it started."""
    set_reason: Callable[[str], None]
    """Stores a description of the current activity."""
    log_line: Callable[[str], None]
    """Writes a line to the log."""

    def run(self, pythons: Interpreters, answers: Mapping[str, Completed]) -> dict[str, NodeFacts]:
        """Check the hosts with the ranks' Python; return their facts by host name.

        `answers` are the hosts' answers from their preparation. Hosts with facts in their answer are not asked again.
        The allreduce is skipped if these nodes have passed it since they booted, unless the run asks for a full
        pre-flight. The report is written to the run's directory and to the log. Returns {} without a check if the run
        skips the pre-flight, has its own launcher, or is cancelled. Raises PreflightError with the hosts that failed.
        """
        spec = self.spec
        if spec.preflight == "skip" or spec.launcher or self.is_cancelled():
            return {}
        self.set_reason("pre-flight: checking the nodes")
        answers = {name: answer for name, answer in answers.items() if answer.status == 0 and FACTS in answer.output}
        absent = [host for host in spec.hosts if host.name not in answers]
        answers |= self.hosts.everywhere(absent, facts_command(pythons.ranks, spec), FACTS_TIMEOUT_S)
        if self.is_cancelled():
            return {}
        report, facts = node_checks.judge(spec, answers, hashlib.sha256(self.directory.spec.read_bytes()).hexdigest())
        proved = self.runs_root / ".proved" / node_checks.key(spec, pythons.ranks, facts)
        report = self._allowing(report)
        if not report.findings and (spec.preflight == "full" or not proved.exists()):
            self.set_reason("pre-flight: testing an allreduce")
            status, output = self._prove(pythons)
            if self.is_cancelled():
                return facts
            report = self._allowing(node_checks.judge_allreduce(spec, report, status, output, facts))
            if not (report.findings or report.allowed or report.warnings or node_checks.is_unchecked(output)):
                proved.parent.mkdir(exist_ok=True)
                proved.touch()
        elif not report.findings:
            report = as_proved_before(report)
        self.directory.write(self.directory.preflight, json.dumps(report.to_document(), indent=1))
        for line in report.lines():
            self.log_line(line)
        if report.findings:
            raise PreflightError(report)
        return facts

    def _allowing(self, report: Report) -> Report:
        """Return the report with degraded findings moved to `allowed` if the run has --allow-degraded."""
        return report.allowing_degraded() if self.spec.allow_degraded else report

    def _proof_command(self, pythons: Interpreters) -> list[str]:
        if self.spec.rank_launcher != HOROVOD:
            proof = ("-m", "agent.preflight.allreduce", self.spec.run_directory, TORCH)
            return [*launcher_command(self.spec, pythons), *proof]
        plain = dataclasses.replace(self.spec, knobs=Knobs())
        return horovodrun(plain, pythons, node_checks.allreduce_command(pythons.ranks, self.spec))

    def _prove(self, pythons: Interpreters) -> tuple[int, str]:
        """Run the allreduce on the run's hosts; return its status (TIMED_OUT if it was killed) and its output.

        The output is also in preflight.log in the run's directory. The ranks are killed after the time limit, or when
        the run is cancelled.
        """
        path = self.directory.path / "preflight.log"
        command = self._proof_command(pythons)
        self.directory.discard(path)  # Ranks of an earlier attempt may have left a link or a directory there.
        with path.open("xb") as output:
            launcher, began = self.hosts.start(command, output), time.monotonic()

            def has_started() -> bool:
                return self.is_cancelled() or node_checks.is_everyone_here(self.spec, _text(path))

            self.hosts.wait_for(launcher, node_checks.PROOF_TIMEOUT_S, until=has_started)
            started_s = time.monotonic() - began
            if started_s < node_checks.PROOF_TIMEOUT_S:
                left_s = max(node_checks.PROOF_TIMEOUT_S, PROOF_BY_START * started_s) - started_s
                self.hosts.wait_for(launcher, left_s, until=self.is_cancelled)
        status = launcher.poll()
        if status is None:
            self.hosts.kill(launcher)
            launcher.wait()
        return TIMED_OUT if status is None else status, _text(path)


def _text(path: Path) -> str:
    """Return the content of the file with the ranks' output, at most its last MAX_OUTPUT bytes. Raises OSError."""
    with open_regular(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_OUTPUT))
        return file.read(MAX_OUTPUT).decode("utf-8", errors="replace")
